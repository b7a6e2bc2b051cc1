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
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.charts.scatter import plot_points

NEEDS_DATA = True
HEADER = ('run', 'group', 'class', 'x', 'y')
PERPLEXITY = 30.0


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Map the chosen classes' images to the plane, run after run."""
  # The options of all runs are checked before the first map is computed.
  chosen = [(run, *_choices(run, options)) for run in runs]
  for run, classes, *_ in chosen:
    _check_images(run, classes, options.images)
  rows, panels, colours = [], [], {}
  for run, classes, group, names in chosen:
    labels, points = measure(run, classes, options.images, log)
    title = f'{run.name}, test images'
    panel, found = plot_points(title, points, group[labels], names)
    panels.append(panel)
    colours |= found
    for label, point in zip(labels, points, strict=True):
      place = [f'{value:.4f}' for value in point]
      rows.append([run.label, names[group[label]], label, *place])
  return Answer(picture.draw('', panels, colours), HEADER, rows)


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
