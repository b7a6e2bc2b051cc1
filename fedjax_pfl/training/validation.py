"""Choose a round, and a view of it, on examples that nobody trains on.

Candidates are the evaluated rounds of the last stage, each in the views of
`candidate_views`. One is chosen for all clients, so that it is one model that
could be deployed:

  argmax over rounds t and views v of  mean over clients k of a_k(t, v)

where a_k is client k's accuracy on its validation examples; of equal ones the
earliest round, and of these the first view. Clients without such examples are
in no mean. Clients adapt on their training data, and right answers are counted,
whatever `adapt_on` and `scoring` say of the tests: no test reaches the choice.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import Array, Scores
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.federated import mesh_states
from fedjax_pfl.federated.cohort import is_on_host
from fedjax_pfl.federated.sharding import is_divided
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.final_views import candidate_views

COPIES = 2  # of all states, while a better round replaces another


class Chosen(NamedTuple):
  """The best round so far on the validation examples: numpy arrays."""

  round: np.ndarray  # [] -1 before the first
  view: np.ndarray  # [] its place in `candidate_views`
  accuracy: np.ndarray  # [] mean over clients, in percent
  server: Server
  clients: Client  # [K, ...]


def has_candidates(experiment: Experiment, stage: Stage) -> bool:
  """Return whether validation may choose a round of this stage."""
  return experiment.validation is not None and stage is experiment.stages[-1]


def init_chosen(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> Chosen | tuple[()]:
  """Return the choice before the first round; () where there is none.

  Of the states only the shapes matter; the result takes no memory.
  """
  if not has_candidates(experiment, stage):
    return ()

  num_clients = experiment.settings.data.num_seen_clients

  def nothing(leaf):
    return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)

  def rows(leaf):  # on a mesh there are more, for an equal share of each device
    zero = np.zeros((), leaf.dtype)
    return np.broadcast_to(zero, (num_clients, *leaf.shape[1:]))

  return Chosen(
    np.array(-1, np.int32),
    np.array(0, np.int32),
    np.array(-1.0),
    jax.tree.map(nothing, server),
    jax.tree.map(rows, clients),
  )


def choose(
  chosen: Chosen,
  accuracy: Mapping[str, float],
  number: int,
  server: Server,
  clients: Client,
) -> Chosen:
  """Return the better of the choice so far and round `number`.

  `accuracy` is that of each candidate view, in their order.
  """
  means = list(accuracy.values())
  view = int(np.argmax(means))
  if not means[view] > chosen.accuracy:
    return chosen
  if any(map(is_divided, jax.tree.leaves(clients))):
    num_clients = len(jax.tree.leaves(chosen.clients)[0])
    clients = mesh_states.to_host(clients, num_clients)
  # Copies: rounds reuse the memory of states, on the device and on the host.
  copies = jax.tree.map(np.array, (server, clients))
  return Chosen(
    np.array(number, np.int32),
    np.array(view, np.int32),
    np.array(means[view]),
    *copies,
  )


def mean_accuracies(
  scores: Mapping[str, Scores], train_count: Array
) -> dict[str, float]:
  """Return {view: mean over the clients that have validation examples}."""
  return {
    view: float(np.nanmean(accuracies(score, train_count)))
    for view, score in scores.items()
  }


def chosen_states(
  experiment: Experiment, chosen: Chosen, mesh: Mesh | None = None
) -> tuple[Server, Client]:
  """Return the states of the chosen round; clients divided over the mesh."""
  server, clients = jax.tree.map(jnp.asarray, chosen.server), chosen.clients
  if mesh is not None:
    clients = mesh_states.divide(clients, mesh)
  elif not is_on_host(experiment.train):
    clients = jax.tree.map(jnp.asarray, clients)
  return server, clients


def describe(experiment: Experiment, chosen: Chosen) -> dict[str, Any]:
  """Return what was chosen, for result.json."""
  return {
    'round': int(chosen.round),
    'view': candidate_views(experiment.settings)[int(chosen.view)],
    'validation_accuracy': float(chosen.accuracy),
  }
