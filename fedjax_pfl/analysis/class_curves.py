"""Accuracy by class after every local epoch (FedBABU, Figure 13).

How a client forgets while it trains: its accuracy on the classes of its
training data, and on all others, averaged over the cohort. Averaging the
models undoes the forgetting: the curves are saw-teeth.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.analysis.charts import chart
from fedjax_pfl.analysis.id_ood import (
  TITLES,
  Split,
  owned_classes,
  split_accuracy,
)
from fedjax_pfl.analysis.open_run import Answer, Log, OpenRun, Options
from fedjax_pfl.analysis.replay import evenly_spaced, replay
from fedjax_pfl.core import progress
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import style_of

HEADER = ('run', 'round', 'epoch', 'own_percent', 'other_percent')

SawTooth = tuple[np.ndarray, Split]  # epochs, accuracies


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Replay the first rounds of every run."""
  del log
  curves = {run.label: measure(run, options) for run in runs}
  rows = [
    row for label, curve in curves.items() for row in rows_of(label, curve)
  ]
  return Answer(draw(curves), HEADER, rows)


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
  seen = []
  with progress.progress(f'replaying {run.name}', num_rounds) as bar:
    for replayed in replay(experiment, images, num_rounds):
      seen.append(replayed)
      bar.update(len(seen), loss=replayed.loss)
  classes = experiment.dataset.num_classes
  owned = owned_classes(experiment.train, classes)  # [K, Y]
  return saw_tooth(
    [replayed.correct for replayed in seen],
    np.bincount(images.y, minlength=classes),
    [owned[replayed.cohort] for replayed in seen],
  )


def saw_tooth(
  correct: Sequence[np.ndarray], count: np.ndarray, owned: Sequence[np.ndarray]
) -> SawTooth:
  """Return cumulative epochs [sum of tau + 1], and the mean over the cohort.

  Of every round correct [C, tau + 1, Y] and owned [C, Y]; count [Y]. The last
  moment of a round and the first of the next share an epoch: before and after
  averaging. Stages differ in C and tau. NaN where no client has such images.
  """
  start, epochs, means = 0, [], []
  for right, own in zip(correct, owned, strict=True):
    epochs.append(start + np.arange(right.shape[1]))
    start = epochs[-1][-1]
    split = split_accuracy(right, count, own[:, None])  # [C, tau + 1]
    with warnings.catch_warnings(action='ignore', category=RuntimeWarning):
      means.append(np.nanmean(split, 1))  # [2, tau + 1]
  return np.concatenate(epochs), Split(*np.concatenate(means, 1))


def draw(curves: dict[str, SawTooth]):
  """Return a figure: own classes on the left, other classes on the right.

  An epoch that occurs twice ends a round and begins the next one: the models
  as they were trained, and their average. A line stands where a round begins.
  """
  begins = np.unique(
    [
      epoch
      for epochs, _ in curves.values()
      for epoch in epochs[1:][np.diff(epochs) == 0]
    ]
  )
  shown = []
  for kind, title in enumerate(TITLES):
    panels, colours = chart(
      title.capitalize(),
      [
        (style_of(label), epochs, split[kind])
        for label, (epochs, split) in curves.items()
      ],
      (
        'local epochs   (vertical line: a round begins)',
        'accuracy on the test set, %',
      ),
      begins=begins.tolist(),
    )
    shown += panels
  return picture.draw('', shown, colours)
