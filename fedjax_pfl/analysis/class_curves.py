"""Accuracy by class after every local epoch (FedBABU, Figure 13).

How a client forgets while it trains: its accuracy on the classes of its
training data, and on all others, averaged over the cohort. Averaging the
models undoes the forgetting: the curves are saw-teeth.

The rounds of the run are played again, by its seeds and its method. Local
training calls a `Watch` with the models of its epochs, which evaluates them on
the whole test set, class by class.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.analysis.charts import Chart, chart
from fedjax_pfl.analysis.id_ood import (
  TITLES,
  Split,
  owned_classes,
  split_accuracy,
)
from fedjax_pfl.analysis.open_run import (
  Answer,
  Log,
  OpenRun,
  Options,
  evenly_spaced,
)
from fedjax_pfl.client.local_training import Watch
from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Task
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import score_classes
from fedjax_pfl.federated.failures import with_failures
from fedjax_pfl.federated.rounds import begin, make_round
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import style_of
from fedjax_pfl.training.build import Experiment, build_stages
from fedjax_pfl.training.state import cohorts_of, places, random_streams

HEADER = ('run', 'round', 'epoch', 'own_percent', 'other_percent')
LABELS = (
  'local epochs   (vertical line: a round begins)',
  'accuracy on the test set, %',
)

SawTooth = tuple[np.ndarray, Split]  # epochs, accuracies


class Round(NamedTuple):
  """One replayed round; tau epochs make tau + 1 moments."""

  server: Server  # after the round
  cohort: np.ndarray  # [C] ids
  correct: np.ndarray  # [C, tau + 1, Y] right answers to the test set


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Replay the first rounds of every run."""
  del log
  curves = {run.label: measure(run, options) for run in runs}
  rows = [row for one in curves.items() for row in rows_of(*one)]
  return Answer(*draw(curves), rows)


def rows_of(label: str, curve: SawTooth) -> list[list]:
  """Return the lines of the CSV; a round begins where an epoch repeats."""
  epochs, split = curve
  rounds = 1 + np.cumsum(np.diff(epochs, prepend=-1) == 0)
  return [
    [label, *place, format_number(own), format_number(other)]
    for *place, own, other in zip(rounds, epochs, *split, strict=True)
  ]


def measure(run: OpenRun, options: Options) -> SawTooth:
  """Return the curves of one run."""
  experiment = run.experiment
  images = evenly_spaced(experiment.dataset.test, options.images)
  num_rounds = min(options.rounds or experiment.rounds, experiment.rounds)
  classes = experiment.dataset.num_classes
  owned = owned_classes(experiment.train, classes)  # [K, Y]
  seen = []
  with progress.progress(f'replaying {run.name}', num_rounds) as bar:
    for replayed in replay(experiment, images, num_rounds):
      seen.append((replayed.correct, owned[replayed.cohort]))
      bar.update(len(seen))
  return saw_tooth(seen, np.bincount(images.y, minlength=classes))


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
      correct = np.asarray(metrics['watched'])
      yield Round(server, np.asarray(cohort), correct)


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


def saw_tooth(
  rounds: Sequence[tuple[np.ndarray, np.ndarray]], count: np.ndarray
) -> SawTooth:
  """Return cumulative epochs [sum of tau + 1], and the mean over the cohort.

  Of every round correct [C, tau + 1, Y] and owned [C, Y]; count [Y]. The last
  moment of a round and the first of the next share an epoch: before and after
  averaging. Stages differ in C and tau. NaN where no client has such images.
  """
  start, epochs, means = 0, [], []
  for correct, owned in rounds:
    epochs.append(start + np.arange(correct.shape[1]))
    start = epochs[-1][-1]
    split = split_accuracy(correct, count, owned[:, None])  # [C, tau + 1]
    with warnings.catch_warnings(action='ignore', category=RuntimeWarning):
      means.append(np.nanmean(split, 1))  # [2, tau + 1]
  return np.concatenate(epochs), Split(*np.concatenate(means, 1))


def draw(curves: dict[str, SawTooth]) -> Chart:
  """Return two panels: own classes on the left, other classes on the right.

  An epoch that occurs twice ends a round and begins the next one: the models
  as they were trained, and their average. A line stands where a round begins.
  """
  begins = {
    float(epoch)
    for epochs, _ in curves.values()
    for epoch in epochs[1:][np.diff(epochs) == 0]
  }
  panels = []
  for kind, title in enumerate(TITLES):
    lines = [
      (style_of(label), epochs, split[kind])
      for label, (epochs, split) in curves.items()
    ]
    title = title.capitalize()
    panel, colours = chart(title, lines, LABELS, begins=sorted(begins))
    panels += panel
  return panels, colours
