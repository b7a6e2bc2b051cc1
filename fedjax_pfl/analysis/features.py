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

from fedjax_pfl.analysis.class_names import choose_classes, class_names
from fedjax_pfl.analysis.open_run import (
  Answer,
  Chart,
  Log,
  OpenRun,
  Options,
  evenly_spaced,
  load_global,
)
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.data.batching import rows_in_order
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import TEST_BATCH
from fedjax_pfl.report.charts.panels import Key, Panel
from fedjax_pfl.report.charts.svg import drawing, marker, tag, text
from fedjax_pfl.report.styles import distinct_styles
from fedjax_pfl.training.evaluators import as_one_client

HEADER = ('run', 'name', 'class', 'x', 'y')
PERPLEXITY = 30.0
SIDE, EDGE = 500, 12  # of the chart
MAX_NAMES = 12  # that fit among the points


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Map the chosen classes' images to the plane, run after run."""
  # The options of all runs are checked before the first map is computed.
  chosen = [(run, *choose(run, options)) for run in runs]
  rows, panels, colours = [], [], {}
  for run, images, shown, names in chosen:
    task, labels = run.experiment.task, images.y[shown]
    features = image_features(task, load_global(task, run.path), images)
    log(f'{run.name}: a map of {len(labels):,} images')
    points = embed(features[shown])  # [P, 2]
    title = f'{run.name}, test images'
    own, own_colours = points_chart(title, points, labels, names)
    panels += own
    colours |= own_colours
    for label, (x, y) in zip(labels, points, strict=True):
      name = names[label]
      rows.append([run.label, name, label, f'{x:.4f}', f'{y:.4f}'])
  return Answer(panels, colours, rows)


def choose(run: OpenRun, options: Options):
  """Return images, which of them are shown, and the names of the classes."""
  sizes = run.settings.data.dataset, run.experiment.dataset.num_classes
  images = evenly_spaced(run.experiment.dataset.test, options.images)
  shown = np.isin(images.y, choose_classes(options.classes, *sizes))
  if shown.sum() < 2:
    raise bad_input(
      'images',
      got=f'{shown.sum()} of these classes among {len(images.y):,} test images',
      expected='two images or more of the chosen classes',
      choices=['--images=0, which is all'],
      cause='a number that is too small for the classes',
    )
  return images, shown, class_names(*sizes)


def image_features(
  task: Task, params: Params, images: Images, batch_size: int = TEST_BATCH
) -> np.ndarray:
  """Return the features [P, F] of all images."""
  number = len(images.y)
  size = min(batch_size, number)

  @jax.jit
  def compute(params, data):
    def batch(position):
      x, _, real = rows_in_order(data, data.index, position, size)
      x = task.normalise(x, jax.random.key(0))
      return task.features(params, x, real.astype(float_dtype(x)))

    return lax.map(batch, jnp.arange(-(-number // size)))  # [batches, B, F]

  rows = np.asarray(compute(params, as_one_client(images)))
  return rows.reshape(-1, rows.shape[-1])[:number]


def embed(features: np.ndarray, seed: int = 0) -> np.ndarray:
  """Return t-SNE's map of the features [P, F] to the plane: [P, 2].

  The perplexity is 30, or less for few points; the map starts from the
  principal components. Axes and distances between groups mean nothing.
  """
  from sklearn.manifold import TSNE  # 1 s

  perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
  tsne = TSNE(perplexity=perplexity, init='pca', random_state=seed, n_jobs=-1)
  return tsne.fit_transform(np.asarray(features, np.float32))


def points_chart(
  title: str, points: np.ndarray, group: np.ndarray, names: Sequence[str]
) -> Chart:
  """Draw points [P, 2] in the colour and marker of their group [P].

  Up to 12 groups are also named in the figure, which can then be read without
  colour. Coordinates of t-SNE mean nothing, so the axis has no ticks.
  """
  shown = np.unique(group)
  styles = distinct_styles([names[number] for number in shown])
  low, high = points.min(0), points.max(0)
  scale = (SIDE - 2 * EDGE) / max(*(high - low), 1e-9)  # of both axes
  places = SIDE / 2 + scale * (points - (low + high) / 2) * [1, -1]
  size = float(np.clip(100 / len(points) ** 0.5, 1.4, 3.5))
  parts, keys, colours = [], [], {}
  for number, style in zip(shown, styles.values(), strict=True):
    css = f'g{number}'
    own = places[group == number]
    data = ''.join(marker(style.marker, x, y, size) for x, y in own)
    tooltip = tag('title', style.name)
    dots = tag('path', tooltip, d=data, class_=f'swatch {css}', opacity='0.6')
    parts.append(dots)
    sample = tag('path', d=marker(style.marker, 17, 8, 5), class_='swatch')
    sample = tag('svg', sample, viewBox='0 0 34 16', class_=f'sample {css}')
    keys.append(Key(sample, style.name, ''))
    colours[css] = style.colour
  if len(shown) <= MAX_NAMES:
    for number in shown:
      x, y = np.median(places[group == number], 0)
      parts.append(text(x, y + 4, names[number], 'middle', 'name'))
  svg = drawing(SIDE, SIDE, title, *parts)
  return [Panel(title, svg, keys=tuple(keys))], colours
