"""Accuracy by class after every local epoch (FedBABU, Figure 13).

How a client forgets while it trains: its accuracy on the classes of its
training data, and on all others, averaged over the cohort. Averaging the
models undoes the forgetting: the curves are saw-teeth.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_pfl.analysis.answer import Answer, Log, OpenRun, Options
from fedjax_pfl.analysis.own_classes import (
  Split,
  mean_over_clients,
  owned_classes,
  split_accuracy,
)
from fedjax_pfl.analysis.replay import evenly_spaced, replay
from fedjax_pfl.core import progress
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.layout import add_legend, make_figure
from fedjax_pfl.report.plots import Axis, Curve, tidy
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
    moments = run.settings.training.local_epochs + 1
    epochs, split = curves[run.label]
    for moment, (epoch, *pair) in enumerate(zip(epochs, *split, strict=True)):
      place = [moment // moments + 1, epoch]
      rows.append([run.label, *place, *map(format_number, pair)])
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
  cohorts = np.stack([replayed.cohort for replayed in seen])  # [T, C]
  return saw_tooth(
    np.stack([replayed.correct for replayed in seen]),
    np.bincount(images.y, minlength=classes),
    owned_classes(experiment.train, classes)[cohorts],
  )


def saw_tooth(
  correct: np.ndarray, count: np.ndarray, owned: np.ndarray
) -> tuple[np.ndarray, Split]:
  """Return cumulative epochs [T (tau + 1)], and the mean over the cohort.

  correct [T, C, tau + 1, Y], count [Y] and owned [T, C, Y]. The last moment of
  a round and the first of the next share an epoch: before and after averaging.
  """
  num_rounds, _, moments, _ = correct.shape
  epochs = np.arange(num_rounds)[:, None] * (moments - 1) + np.arange(moments)
  split = split_accuracy(correct, count, owned[:, :, None])  # [T, C, tau + 1]
  means = [
    mean_over_clients(np.swapaxes(values, 0, 1)).reshape(-1) for values in split
  ]
  return epochs.reshape(-1), Split(*means)


def draw(curves: dict[str, SawTooth]):
  """Return a figure: own classes on the left, other classes on the right."""
  figure, axes = make_figure(2, 5.2, 4.2, sharey=True)
  for ax, (kind, title) in zip(axes, TITLES.items(), strict=True):
    shown = {
      label: Curve(epochs, getattr(split, kind))
      for label, (epochs, split) in curves.items()
    }
    plot_saw_tooth(ax, shown)
    ax.set_title(title, fontsize=11)
  axes[1].set_ylabel('')
  add_legend(figure, axes[0])
  return figure


def plot_saw_tooth(ax: Axis, curves: Mapping[str, Curve]) -> Axis:
  """Draw accuracy against local epochs; a line where a new round begins.

  An epoch that occurs twice ends a round and begins the next one: the models
  as they were trained, and their average. Curve.rounds are epochs here.
  """
  begins: set[float] = set()
  for algorithm, curve in curves.items():
    style = style_of(algorithm)
    starts = [0, *np.flatnonzero(np.diff(curve.rounds) == 0) + 1]
    begins |= {float(curve.rounds[start]) for start in starts}
    ax.plot(
      curve.rounds,
      curve.accuracy,
      color=style.colour,
      linestyle=style.dash,
      linewidth=1.6,
      marker=style.marker,
      markersize=5,
      markevery=starts,
      label=style.name,
    )
  for begin in sorted(begins):
    ax.axvline(begin, color='#DDDDDD', linewidth=0.8, zorder=0)
  ax.set_xlim(0, max(curve.rounds[-1] for curve in curves.values()))
  ax.set_ylim(bottom=0)
  ax.set_xlabel('local epochs   (marker: a round begins)')
  ax.set_ylabel('accuracy on the test set [%]')
  ax.xaxis.get_major_locator().set_params(integer=True)
  return tidy(ax)
