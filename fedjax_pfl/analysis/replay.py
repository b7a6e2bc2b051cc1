"""Run the rounds of a finished run again, and score every local epoch.

A replay has the seeds and the method of the run. Before the first and after
every local epoch the model of each client of the cohort is evaluated on the
complete test set, class by class. It works for any method: local training
calls a `Watch` with the models of its epochs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.client.local_training import Watch
from fedjax_pfl.core.algorithm import Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Task
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import score_classes
from fedjax_pfl.federated.failures import HAS_SENT, with_failures
from fedjax_pfl.federated.rounds import begin, make_round
from fedjax_pfl.training.build import Experiment, build_stages
from fedjax_pfl.training.state import cohorts_of, places, random_streams


class Round(NamedTuple):
  """One replayed round; tau epochs make tau + 1 moments."""

  server: Server  # after the round
  cohort: np.ndarray  # [C] ids
  correct: np.ndarray  # [C, tau + 1, Y] right answers to the test set
  loss: float  # mean over clients and steps, as in metrics.jsonl


def evenly_spaced(images: Images, number: int) -> Images:
  """Return this number of the images, evenly spaced; all of them if 0."""
  size = len(images.y)
  if not size:
    raise bad_input(
      'run',
      got='a run whose data set has no test images of its own',
      expected='test images that all clients share',
      choices=["the words 'test' in `split` of the .npz file"],
      cause='own arrays whose clients are tested on training images',
    )
  number = min(number or size, size)
  rows = np.arange(number) * size // number
  return Images(images.x[rows], images.y[rows])


def replay(
  experiment: Experiment, images: Images, num_rounds: int
) -> Iterator[Round]:
  """Yield the first rounds of a run, scored after every local epoch."""
  settings, train = experiment.settings, experiment.train
  pool = train._replace(  # the images are at its end
    x=jnp.concatenate([train.x[:], jnp.asarray(images.x)]),
    y=jnp.concatenate([train.y, jnp.asarray(images.y, train.y.dtype)]),
  )
  test_rows = jnp.arange(len(train.y), len(pool.y))
  watch = make_watch(experiment.task, test_rows)
  stages = build_stages(settings, experiment.task, watch)
  keys = random_streams(settings.seed)
  server, clients = begin(stages[0], train, keys['states'])
  for _, stage, first, last in places(stages):
    if first:
      server, clients = stage.initialize(server, clients, train)
    stage = with_failures(stage, settings.training.dropout_rate)
    round_fn = make_round(
      stage.algorithm, clients_per_chunk=settings.system.clients_per_chunk
    )
    for number in range(first, min(last, num_rounds)):
      (cohort,) = cohorts_of(
        experiment, stage, keys['cohorts'], number, number + 1
      )
      server, clients, metrics = round_fn(
        server, clients, cohort, pool, keys['rounds']
      )
      if 'watched' not in metrics:
        raise bad_input(
          'run',
          got=f'a run of {stage.name}, whose metrics do not cover its epochs',
          expected='a method whose metrics are those of local_training.fit',
          cause='a method that does not train on clients, or by a loop of its '
          'own',
        )
      losses = np.asarray(metrics['loss'])
      # Of the clients that sent something; of all if none did.
      sent = np.asarray(metrics.get(HAS_SENT, np.ones(losses.shape, bool)))
      loss = float(np.mean(losses[sent] if sent.any() else losses))
      correct = np.asarray(metrics['watched'])
      yield Round(server, np.asarray(cohort), correct, loss)


def make_watch(task: Task, test_rows: Array) -> Watch:
  """Return (models, data) -> right answers [tau + 1, Y] to the `test_rows`.

  The rows are in the pool that also holds the clients' own examples.
  """

  def watch(models, data):
    if jax.tree.structure(models[0]) != jax.tree.structure(task.is_head):
      raise bad_input(
        'run',
        got='a method that trains something else than one model',
        expected='a method whose local training is that of one model',
        cause='it trains several models at once, such as a mixture',
      )
    count = jnp.asarray(len(test_rows), jnp.int32)
    test = data._replace(index=test_rows, count=count)

    def correct(params):
      return score_classes(
        task.num_classes, task.logits, params, test, task.normalise
      ).correct

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return lax.map(correct, stacked)

  return watch
