"""Own and other classes after every local epoch of the rounds (Figure 13)."""

from typing import Any

import numpy as np

from experiments.answers.common import (
  Answer,
  Log,
  Opened,
  Options,
  add_legend,
  make_figure,
)
from fedjax_pfl.analysis.class_curves import replay, saw_tooth, some_images
from fedjax_pfl.analysis.classes import Split, owned_classes
from fedjax_pfl.core import progress
from fedjax_pfl.report import class_plots, plots
from fedjax_pfl.report.saving import number

WITH_DATA = True
HEADER = ('run', 'round', 'epoch', 'own_percent', 'other_percent')
WORDS = {'own': 'Classes of the client', 'other': 'All other classes'}

SawTooth = tuple[np.ndarray, Split]  # epochs, accuracies


def ask(runs: list[Opened], options: Options, log: Log) -> Answer:
  """Play the first rounds of every run once more."""
  del log
  curves = {run.label: measure(run, options) for run in runs}
  rows: list[list[Any]] = []
  for run in runs:
    moments = run.settings['local_epochs'] + 1
    epochs, split = curves[run.label]
    for moment, (epoch, *pair) in enumerate(zip(epochs, *split, strict=True)):
      place = [moment // moments + 1, epoch]
      rows.append([run.label, *place, *map(number, pair)])
  return Answer(draw(curves), HEADER, rows)


def measure(run: Opened, options: Options) -> SawTooth:
  """Return the curves of one run."""
  experiment = run.experiment
  images = some_images(experiment.dataset.test, options.images)
  rounds = min(options.rounds or experiment.rounds, experiment.rounds)
  seen = []
  with progress.progress(f'replaying {run.name}', rounds) as bar:
    for one in replay(experiment, images, rounds):
      seen.append(one)
      bar.update(len(seen), loss=one.loss)
  classes = experiment.dataset.num_classes
  cohorts = np.stack([one.cohort for one in seen])  # [T, C]
  return saw_tooth(
    np.stack([one.correct for one in seen]),
    np.bincount(images.y, minlength=classes),
    owned_classes(experiment.train, classes)[cohorts],
  )


def draw(curves: dict[str, SawTooth]):
  """Return a figure: own classes on the left, other classes on the right."""
  figure, axes = make_figure(2, 5.2, 4.2, sharey=True)
  for ax, (kind, title) in zip(axes, WORDS.items(), strict=True):
    shown = {
      label: plots.Curve(epochs, getattr(split, kind))
      for label, (epochs, split) in curves.items()
    }
    class_plots.plot_saw_tooth(ax, shown)
    ax.set_title(title, fontsize=11)
  axes[1].set_ylabel('')
  add_legend(figure, axes[0])
  return figure
