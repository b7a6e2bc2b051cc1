"""Accuracy by class after every local epoch (FedBABU, Figure 13).

How a client forgets while it trains: its accuracy on the classes of its
training data, and on all others, averaged over the cohort. Averaging the
models undoes the forgetting: the curves are saw-teeth.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.analysis.charts import Chart, chart
from fedjax_pfl.analysis.id_ood import (
  TITLES,
  Split,
  owned_classes,
  split_accuracy,
)
from fedjax_pfl.analysis.open_run import Answer, Log, OpenRun, Options
from fedjax_pfl.analysis.replay import evenly_spaced, replay
from fedjax_pfl.core import progress
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import style_of

HEADER = ('run', 'round', 'epoch', 'own_percent', 'other_percent')
LABELS = (
  'local epochs   (vertical line: a round begins)',
  'accuracy on the test set, %',
)

SawTooth = tuple[np.ndarray, Split]  # epochs, accuracies


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
      bar.update(len(seen), loss=replayed.loss)
  return saw_tooth(seen, np.bincount(images.y, minlength=classes))


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
