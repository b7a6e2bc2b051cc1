"""How long the loops of a run are, which the compiler does not know.

A client has the steps of its own examples; a chunk has those of its largest
client, since the others wait for it.
"""

from collections.abc import Sequence

import jax
import numpy as np

from fedjax_pfl.client.traced_fits import traced_fits
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm
from fedjax_pfl.core.types import ClientData, PyTree
from fedjax_pfl.data.batching import Batching, steps_of_epoch
from fedjax_pfl.federated.cohort import client_update, gather


def batches_of(counts: np.ndarray, size: int) -> np.ndarray:
  """Return how many batches clients have: [K].

  >>> batches_of(np.array([0, 10, 11]), 10).tolist()
  [0, 1, 2]
  """
  return -(-np.asarray(counts) // size)


def steps_of_fits(
  algorithm: Algorithm, arguments: Sequence[PyTree], counts: np.ndarray
) -> np.ndarray | None:
  """Return the steps of an epoch of the local training of clients: [K].

  `arguments` are those of a round, of which only the shapes matter; `counts`
  [K] the examples of clients. None of a method that does not use `fit`. Of
  several fits, whose loops cannot be told apart, it is the longest.
  """

  def first_client(server, clients, cohort, data, key):
    row = trees.gather(gather(clients, cohort, data), 0)
    return client_update(algorithm, server, data, key)(row)

  with traced_fits() as batchings:
    jax.eval_shape(first_client, *arguments)
  if not batchings:
    return None
  return np.max([_steps(counts, one) for one in batchings], axis=0)


def mean_of_chunks(steps: np.ndarray, cohort: int, chunk: int) -> float:
  """Return the steps of an epoch of a chunk, which its largest client has.

  The mean over the chunks of one cohort, evenly spaced in size over all
  clients, of which `steps` [K] are those of an epoch.

  >>> mean_of_chunks(np.array([1, 2, 3, 4]), cohort=4, chunk=2)
  3.0
  """
  steps = np.sort(steps)
  chosen = steps[np.linspace(0, len(steps) - 1, cohort).round().astype(int)]
  return float(
    np.mean([max(chosen[i : i + chunk]) for i in range(0, cohort, chunk)])
  )


def _steps(counts: np.ndarray, batching: Batching) -> np.ndarray:
  clients = ClientData(None, None, None, np.asarray(counts))
  return np.asarray(steps_of_epoch(clients, batching))
