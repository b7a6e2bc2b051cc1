"""t-SNE of the test images' features in the global model (Figures 15, 16)."""

import numpy as np

from experiments.answers.common import (
  Answer,
  Log,
  Opened,
  Options,
  add_legend,
  make_figure,
)
from fedjax_pfl.analysis.class_curves import some_images
from fedjax_pfl.analysis.class_names import choose_classes, group_classes
from fedjax_pfl.analysis.features import embed, image_features
from fedjax_pfl.analysis.runs import load_global
from fedjax_pfl.report.scatter import plot_points

WITH_DATA = True
HEADER = ('run', 'group', 'class', 'x', 'y')


def ask(runs: list[Opened], options: Options, log: Log) -> Answer:
  """Map the chosen classes' images, run after run."""
  maps = [(run, *_choices(run, options)) for run in runs]  # mistakes first
  figure, axes = make_figure(len(runs), 5.4, 5.2)
  rows = []
  for ax, (run, classes, group, names) in zip(axes, maps, strict=True):
    labels, points = measure(run, classes, options.images, log)
    plot_points(ax, points, group[labels], names)
    ax.set_title(f'{run.name}, test images', fontsize=11)
    for label, point in zip(labels, points, strict=True):
      place = [f'{value:.4f}' for value in point]
      rows.append([run.label, names[group[label]], label, *place])
  add_legend(figure, axes[0], markerscale=1.7)
  return Answer(figure, HEADER, rows)


def measure(
  run: Opened, classes: list[int], images: int, log: Log
) -> tuple[np.ndarray, np.ndarray]:
  """Return labels [P] and places [P, 2] of the images of these classes."""
  task = run.experiment.task
  chosen = some_images(run.experiment.dataset.test, images)
  found = image_features(task, load_global(task, run.path), chosen)
  shown = np.isin(chosen.y, classes)
  log(f'{run.name}: a map of {shown.sum():,} images')
  return chosen.y[shown], embed(found[shown])


def _choices(run: Opened, options: Options):
  sizes = run.settings['dataset'], run.experiment.dataset.num_classes
  classes = choose_classes(options.classes, *sizes)
  return classes, *group_classes(options.colours, *sizes)
