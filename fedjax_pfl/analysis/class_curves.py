"""Accuracy by class after every local epoch (FedBABU, Figure 13).

How a client forgets while it trains: its accuracy on the classes of its
training data, and on all others, averaged over the cohort. Averaging the
models undoes the forgetting: the curves are saw-teeth.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_pfl.analysis.open_run import Answer, Log, OpenRun, Options
from fedjax_pfl.analysis.own_classes import (
  Split,
  mean_over_clients,
  owned_classes,
  split_accuracy,
)
from fedjax_pfl.analysis.replay import evenly_spaced, replay
from fedjax_pfl.core import progress
from fedjax_pfl.report.charts import panels, picture
from fedjax_pfl.report.charts.lines import Series
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import style_of

NEEDS_DATA = True
HEADER = ('run', 'round', 'epoch', 'own_percent', 'other_percent')
TITLES = {'own': 'Classes of the client', 'other': 'All other classes'}

SawTooth = tuple[np.ndarray, Split]  # epochs, accuracies


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Replay the first rounds of every run."""
  del log
  curves = {run.label: measure(run, options) for run in runs}
  rows: list[list[Any]] = []
  for run in runs:
    epochs, split = curves[run.label]
    rounds = 1 + np.cumsum(np.diff(epochs, prepend=-1) == 0)
    for *place, own, other in zip(rounds, epochs, *split, strict=True):
      rows.append([run.label, *place, format_number(own), format_number(other)])
  return Answer(draw(curves), HEADER, rows)


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
  averaging. Stages differ in C and tau.
  """
  start, epochs, means = 0, [], []
  for right, own in zip(correct, owned, strict=True):
    epochs.append(start + np.arange(right.shape[1]))
    start = epochs[-1][-1]
    split = split_accuracy(right, count, own[:, None])  # [C, tau + 1]
    means.append([mean_over_clients(values) for values in split])
  joined = (np.concatenate(part) for part in zip(*means, strict=True))
  return np.concatenate(epochs), Split(*joined)


def draw(curves: dict[str, SawTooth]):
  """Return a figure: own classes on the left, other classes on the right.

  An epoch that occurs twice ends a round and begins the next one: the models
  as they were trained, and their average. A line stands where a round begins.
  """
  styles = {label: style_of(label) for label in curves}
  begins = sorted(
    {
      float(epoch)
      for epochs, _ in curves.values()
      for epoch in epochs[1:][np.diff(epochs) == 0]
    }
  )
  shown = []
  for kind, title in TITLES.items():
    lines = [
      Series(style.name, f'c{at}', style, epochs, getattr(split, kind))
      for at, (style, (epochs, split)) in enumerate(
        zip(styles.values(), curves.values(), strict=True)
      )
    ]
    shown += panels.curves(
      title,
      lines,
      'local epochs   (vertical line: a round begins)',
      'accuracy on the test set, %',
      begins,
    )
  colours = {f'c{at}': style.colour for at, style in enumerate(styles.values())}
  return picture.draw('', shown, colours)
