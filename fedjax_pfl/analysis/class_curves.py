"""How a client forgets while it trains (FedBABU, Figure 13).

A run is played again, with its own seeds and its own method. Before the first
and after every local epoch the model of each client of the cohort answers the
complete test set; its accuracy is split by the client's training classes and
averaged over the cohort. Averaging pulls it back: the curves are saw-teeth.

The method is not looked into: local training shows its epochs to a `Watch`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.analysis.classes import Split, mean_over_clients, split_accuracy
from fedjax_pfl.client.local_training import Watch
from fedjax_pfl.core.algorithm import Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Task
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import TEST_BATCH, score_classes
from fedjax_pfl.federated.cohort import sample_cohorts
from fedjax_pfl.federated.rounds import begin, make_round
from fedjax_pfl.training.experiment import Experiment, build_stages
from fedjax_pfl.training.seed_run import random_streams
from fedjax_pfl.training.state import stage_bounds


class Round(NamedTuple):
  """What was seen of one round; tau epochs make tau + 1 moments."""

  server: Server  # after the round
  cohort: np.ndarray  # [C] ids
  correct: np.ndarray  # [C, tau + 1, Y] right answers to the test set
  loss: float  # mean over clients and steps, as in metrics.jsonl


def some_images(images: Images, number: int) -> Images:
  """Return so many of the images, evenly spaced; all if the number is 0."""
  size = len(images.y)
  number = min(number or size, size)
  rows = np.arange(number) * size // number
  return Images(images.x[rows], images.y[rows])


def make_watch(
  task: Task, test_rows: Array, batch_size: int = TEST_BATCH
) -> Watch:
  """Return (models, data) -> right answers [tau + 1, Y] to the `test_rows`.

  The rows are in the pool that the clients' own examples are in.
  """

  def watch(models, data):
    if jax.tree.structure(models[0]) != jax.tree.structure(task.is_head):
      raise bad_input(
        'run',
        got='a method that trains something else than one model',
        expected='a method whose local training is that of one model',
        cause='it trains several models at once, such as a mixture',
      )
    test = data._replace(
      index=test_rows, count=jnp.asarray(len(test_rows), jnp.int32)
    )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return lax.map(
      lambda params: (
        score_classes(
          task.num_classes,
          task.logits,
          params,
          test,
          task.normalise,
          batch_size,
        ).correct
      ),
      stacked,
    )

  return watch


def replay(
  experiment: Experiment, images: Images, rounds: int
) -> Iterator[Round]:
  """Yield the first rounds of a run once more, seen from the inside."""
  settings, train = experiment.settings, experiment.train
  pool = _join(train, images)
  test_rows = jnp.arange(len(train.y), len(pool.y))
  watch = make_watch(experiment.task, test_rows)
  stages = build_stages(settings, experiment.task, watch)
  keys = random_streams(settings['seed'])
  server, clients = begin(stages[0], train, keys['states'])
  for stage, first, last in stage_bounds(stages):
    if first:
      server, clients = stage.initialize(server, clients, train)
    round_fn = make_round(
      stage.algorithm, clients_per_chunk=settings['clients_per_chunk']
    )
    for number in range(first, min(last, rounds)):
      (cohort,) = sample_cohorts(
        keys['cohorts'],
        number,
        1,
        settings['num_clients'],
        experiment.cohort_size,
      )
      server, clients, metrics = round_fn(
        server, clients, cohort, pool, keys['rounds']
      )
      yield Round(
        server,
        np.asarray(cohort),
        _watched(metrics, stage.name),
        float(np.mean(metrics['loss'])),
      )


def saw_tooth(
  correct: np.ndarray, count: np.ndarray, owned: np.ndarray
) -> tuple[np.ndarray, Split]:
  """Return cumulative epochs [T (tau + 1)], and the mean over the cohort.

  correct [T, C, tau + 1, Y], count [Y] and owned [T, C, Y]. Two moments share
  an epoch where a round ends and the next begins: trained, then averaged.
  """
  num_rounds, _, moments, _ = correct.shape
  epochs = np.arange(num_rounds)[:, None] * (moments - 1) + np.arange(moments)
  split = split_accuracy(correct, count, owned[:, :, None])  # [T, C, tau + 1]
  means = [
    mean_over_clients(np.swapaxes(values, 0, 1)).reshape(-1) for values in split
  ]
  return epochs.reshape(-1), Split(*means)


def _join(train: ClientData, images: Images) -> ClientData:
  """Return the clients with the images behind theirs in the pool."""
  return train._replace(
    x=jnp.concatenate([train.x, jnp.asarray(images.x)]),
    y=jnp.concatenate([train.y, jnp.asarray(images.y, train.y.dtype)]),
  )


def _watched(metrics: dict[str, Any], name: str) -> np.ndarray:
  if 'watched' not in metrics:
    raise bad_input(
      'run',
      got=f'a run of {name}, whose metrics tell nothing of its epochs',
      expected='a method whose metrics are those of local.fit',
      cause='a method that does not train on clients, or by a loop of its own',
    )
  return np.asarray(metrics['watched'])
