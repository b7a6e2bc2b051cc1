"""Cosine between clients' layers while they fine-tune (FedBABU, Figure 12).

All clients fine-tune the same global model: their layers start alike, and the
cosine falls, layer by layer, as their data differ.

  mean over i != j of cos(w_i, w_j) = (|sum_i u_i|^2 - K) / (K (K - 1)),
                                       u_i = w_i / |w_i|

The sum of unit vectors is enough: the models of all clients need not be in
memory at once. A layer is a top-level name of the parameters, in order of
depth, and its weights are all kernels below that name (of convolutions and
linear maps) as one vector. Biases and BatchNorm's scales and shifts are left
out: one scale near 1 in all clients would hide what the kernels do.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.analysis.charts import Chart, chart
from fedjax_pfl.analysis.open_run import (
  Answer,
  Log,
  OpenRun,
  Options,
  load_global,
)
from fedjax_pfl.client import personalization
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.report.styles import SOLID, Style
from fedjax_pfl.training.state import random_streams

HEADER = ('run', 'layer', 'epoch', 'cosine')
LABELS = 'fine-tuning epochs', 'mean cosine between clients'
BLOCK = 10  # clients between two updates of the progress bar
MARKERS = 'osD^vP<>Xhp'


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Fine-tune the global model of every run on its clients."""
  del log
  rows, panels, colours = [], [], {}
  for place, run in enumerate(runs):
    number = run.num_clients(options)
    cosines = measure(run, number, options.epochs)
    # Each with its own scale: methods differ by a factor of ten.
    title = f'{run.name}, {number} clients'
    own, own_colours = plot_layers(title, cosines, f'r{place}')
    panels += own
    colours |= own_colours
    for layer, values in cosines.items():
      for epoch, value in enumerate(values):
        rows.append([run.label, layer, epoch, f'{value:.8f}'])
  return Answer(panels, colours, rows)


def measure(run: OpenRun, number: int, epochs: int) -> dict[str, np.ndarray]:
  """Return {layer: [epochs + 1]} of the first clients."""
  if number < 2:
    raise bad_input(
      'clients',
      got=number,
      expected='two clients or more',
      cause='a similarity is one between two clients',
    )
  task, seed = run.experiment.task, run.settings.seed
  finetune = dataclasses.asdict(run.settings.finetune) | {'epochs': (epochs,)}
  title = f'fine-tuning {run.name}'
  with progress.progress(title, number, unit='client') as bar:
    return finetuning_cosines(
      task,
      load_global(task, run.path),
      run.experiment.eval_data[0],  # what adapt_on names
      np.arange(number),
      random_streams(seed)['evaluation'],
      Finetuning(**finetune),
      bar.update,
    )


def finetuning_cosines(
  task: Task,
  params: Params,
  train: ClientData,
  ids: np.ndarray,
  key: Key,
  finetuning: Finetuning,
  on_progress: Callable[[int], None],
) -> dict[str, np.ndarray]:
  """Return {layer: mean cosine between the clients `ids`}, each [E + 1].

  At epochs 0, 1, .., E = max(finetuning.epochs) of the fine-tuning of one
  global model. A client's key is that of the run's evaluation:
  fold_in(key, id).
  """
  every_epoch = tuple(range(1, max(finetuning.epochs) + 1))
  finetuning = finetuning._replace(epochs=every_epoch)

  def units(params, train, client_id, key):
    """Return {layer: u_i [E + 1, D]} of one client."""
    data = ClientData(
      train.x, train.y, train.index[client_id], train.count[client_id]
    )
    models = personalization.finetune(
      task, params, data, jax.random.fold_in(key, client_id), finetuning
    )
    return jax.tree.map(
      lambda *rows: jnp.stack([row / jnp.linalg.norm(row) for row in rows]),
      *[layer_weights(model) for model in (params, *models.values())],
    )

  @jax.jit
  def sum_of_units(params, train, ids, key):
    def add(sums, client_id):
      more = units(params, train, client_id, key)
      return jax.tree.map(jnp.add, sums, more), None

    shapes = jax.eval_shape(units, params, train, ids[0], key)
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return lax.scan(add, start, ids)[0]

  sums = None
  for first in range(0, len(ids), BLOCK):
    block = jnp.asarray(ids[first : first + BLOCK])
    part = sum_of_units(params, train, block, key)
    sums = part if sums is None else jax.tree.map(jnp.add, sums, part)
    on_progress(min(first + BLOCK, len(ids)))
  cosine_fn = jax.vmap(lambda total: cosine_of_sum(total, len(ids)))
  return {
    layer: np.asarray(cosine_fn(sums[layer])) for layer in layer_weights(params)
  }


def plot_layers(
  title: str, cosines: Mapping[str, np.ndarray], css: str
) -> Chart:
  """Draw the mean cosine of every layer [E + 1] against fine-tuning epochs.

  Layers come in order of depth, from light to dark; the last, the head, is
  black. The classes of the colours begin with `css`.
  """
  from matplotlib import colormaps, colors  # 0.2 s

  lines = []
  for at, (layer, values) in enumerate(cosines.items()):
    share = 0.15 + 0.7 * at / max(len(cosines) - 1, 1)
    colour = colors.to_hex(colormaps['viridis_r'](share))
    marker = MARKERS[at % len(MARKERS)]
    if at == len(cosines) - 1:
      colour, marker = '#000000', '*'
    style = Style(layer, colour, colour, SOLID, marker)
    lines.append((style, np.arange(len(values)), values))
  return chart(title, lines, LABELS, css=f'{css}l', digits=4)


def cosine_of_sum(total: Array, number: int) -> Array:
  """Return the mean pairwise cosine of `number` unit vectors with this sum."""
  if number < 2:
    return jnp.asarray(jnp.nan)
  return (jnp.sum(total**2) - number) / (number * (number - 1.0))


def head_row_cosine(params: Params) -> float:
  """Return the mean cosine between the classes' weight vectors in the head.

  The rows of the paper's head are the columns of this kernel [F, Y]. About 0
  where entries are random around 0, and m^2 / (m^2 + s^2) where they have mean
  m and deviation s: 0.9967 for U(0.45, 0.55), the paper's "similar" head. NaN
  for a single class, and where a row is zero.
  """
  rows = jnp.asarray(params['head']['kernel']).T
  units = rows / jnp.linalg.norm(rows, axis=-1, keepdims=True)
  return float(cosine_of_sum(jnp.sum(units, 0), len(rows)))


def layer_weights(params: Params) -> dict[str, Array]:
  """Return the kernels of every layer as one vector, in order of depth.

  That is stem, block2, block10, head.
  """

  def depth(layer):
    number = re.search(r'\d+', layer)
    return layer == 'head', int(number[0]) if number else -1, layer

  kernels: dict[str, list[Array]] = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    names = [key.key for key in path]
    if names[-1] == 'kernel':
      kernels.setdefault(names[0], []).append(jnp.ravel(leaf))
  return {
    layer: jnp.concatenate(kernels[layer])
    for layer in sorted(kernels, key=depth)
  }
