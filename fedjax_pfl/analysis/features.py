"""t-SNE of test images' features in the global model (FedBABU, Fig. 15, 16).

Features are the head's input. Images go through the model in stored order, in
batches of all classes, and those that are shown are chosen afterwards:
BatchNorm then normalises by the same batches as in a test.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.analysis.class_names import choose_classes, group_classes
from fedjax_pfl.analysis.open_run import (
  Answer,
  Log,
  OpenRun,
  Options,
  load_global,
)
from fedjax_pfl.analysis.replay import evenly_spaced
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.types import ClientData, Params, Task
from fedjax_pfl.data.batching import rows_in_order
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import TEST_BATCH
from fedjax_pfl.report.layout import add_legends, make_figure
from fedjax_pfl.report.plots import Axis
from fedjax_pfl.report.styles import distinct_styles

NEEDS_DATA = True
HEADER = ('run', 'group', 'class', 'x', 'y')
PERPLEXITY = 30.0


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Map the chosen classes' images to the plane, run after run."""
  # The options of all runs are checked before the first map is computed.
  chosen = [(run, *_choices(run, options)) for run in runs]
  for run, classes, *_ in chosen:
    _check_images(run, classes, options.images)
  figure, axes = make_figure(len(runs), 5.4, 5.2)
  rows = []
  for ax, (run, classes, group, names) in zip(axes, chosen, strict=True):
    labels, points = measure(run, classes, options.images, log)
    plot_points(ax, points, group[labels], names)
    ax.set_title(f'{run.name}, test images', fontsize=11)
    for label, point in zip(labels, points, strict=True):
      place = [f'{value:.4f}' for value in point]
      rows.append([run.label, names[group[label]], label, *place])
  add_legends(figure, axes, markerscale=1.7)
  return Answer(figure, HEADER, rows)


def measure(
  run: OpenRun, classes: list[int], num_images: int, log: Log
) -> tuple[np.ndarray, np.ndarray]:
  """Return labels [P] and places [P, 2] of the images of these classes."""
  task = run.experiment.task
  images = evenly_spaced(run.experiment.dataset.test, num_images)
  features = image_features(task, load_global(task, run.path), images)
  shown = np.isin(images.y, classes)
  log(f'{run.name}: a map of {shown.sum():,} images')
  return images.y[shown], embed(features[shown])


def image_features(
  task: Task, params: Params, images: Images, batch_size: int = TEST_BATCH
) -> np.ndarray:
  """Return the features [P, F] of all images."""
  number = len(images.y)
  size = min(batch_size, number)
  data = ClientData(
    jnp.asarray(images.x),
    jnp.asarray(images.y, jnp.int32),
    jnp.arange(number),
    jnp.asarray(number, jnp.int32),
  )

  @jax.jit
  def compute(params, data):
    def batch(position):
      x, _, real = rows_in_order(data, data.index, position, size)
      x = task.normalise(x, jax.random.key(0))
      return task.features(params, x, real.astype(float_dtype(x)))

    return lax.map(batch, jnp.arange(-(-number // size)))  # [batches, B, F]

  rows = np.asarray(compute(params, data))
  return rows.reshape(-1, rows.shape[-1])[:number]


def embed(features: np.ndarray, seed: int = 0) -> np.ndarray:
  """Return t-SNE's map of the features [P, F] to the plane: [P, 2].

  The perplexity is 30, or less for few points; the map starts from the
  principal components. Axes and distances between groups mean nothing.
  """
  from sklearn.manifold import TSNE  # 1 s

  perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
  return TSNE(
    perplexity=perplexity, init='pca', random_state=seed, n_jobs=-1
  ).fit_transform(np.asarray(features, np.float32))


def _check_images(run: OpenRun, classes: list[int], num_images: int) -> None:
  """Refuse fewer images than a map has distances between."""
  images = evenly_spaced(run.experiment.dataset.test, num_images)
  number = int(np.isin(images.y, classes).sum())
  if number < 2:
    raise bad_input(
      'images',
      got=f'{number} of these classes among {len(images.y):,} test images',
      expected='two images or more of the chosen classes',
      choices=['--images=0, which is all'],
      cause='a number that is too small for the classes',
    )


def _choices(run: OpenRun, options: Options):
  sizes = run.settings.data.dataset, run.experiment.dataset.num_classes
  classes = choose_classes(options.classes, *sizes)
  return classes, *group_classes(options.colours, *sizes)


MAX_NAMES = 12  # that fit among the points
COLUMNS, ROWS = 6, 14  # of cells that hold a name each


def plot_points(
  ax: Axis, points: np.ndarray, group: np.ndarray, names: Sequence[str]
) -> Axis:
  """Draw points [P, 2] in the colour and marker of their group [P].

  Up to 12 groups are also named in the figure, which can then be read without
  colour. Coordinates of t-SNE mean nothing, so the axis has no ticks.
  """
  from matplotlib import patheffects  # 0.6 s

  shown = np.unique(group)
  styles = distinct_styles([names[number] for number in shown])
  for number, style in zip(shown, styles.values(), strict=True):
    own = points[group == number]
    ax.scatter(
      *own.T,
      s=float(np.clip(40000 / len(points), 4, 24)),
      color=style.colour,
      marker=style.marker,
      alpha=0.6,
      linewidths=0,
      label=style.name,
    )
  if len(shown) <= MAX_NAMES:
    for number, place in name_places(points, group).items():
      ax.annotate(
        names[number],
        place,
        ha='center',
        va='center',
        fontsize=9,
        fontweight='bold',
        path_effects=[patheffects.withStroke(linewidth=3, foreground='white')],
      )
  ax.set_xticks([])
  ax.set_yticks([])
  ax.set_aspect('equal', 'datalim')
  ax.spines[:].set_color('#DDDDDD')
  return ax


def name_places(points: np.ndarray, group: np.ndarray) -> dict[int, np.ndarray]:
  """Return {group: where its name is written}, the middle of a grid cell.

  The cell in which the group has many points, and a large share of all points;
  each cell holds one name at most.
  """
  low, high = points.min(0), points.max(0)
  size = np.maximum(high - low, 1e-9) / [COLUMNS, ROWS]
  cell = np.minimum((points - low) // size, [COLUMNS - 1, ROWS - 1]).astype(int)
  cell = cell[:, 0] * ROWS + cell[:, 1]  # [P]
  total = np.bincount(cell, minlength=COLUMNS * ROWS)
  taken = np.zeros(len(total), bool)
  places = {}
  for number in np.unique(group):
    own = np.bincount(cell[group == number], minlength=COLUMNS * ROWS)
    best = int(np.argmax(np.where(taken, -1, own**2 / np.maximum(total, 1))))
    taken[best] = True
    places[int(number)] = low + size * (np.array(divmod(best, ROWS)) + 0.5)
  return places
