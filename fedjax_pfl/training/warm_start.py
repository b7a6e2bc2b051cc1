"""Warm start: a run starts with the final global model of another run."""

import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl import algorithms
from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.runs import model_file, run_dir


class Start(NamedTuple):
  """The run to start from: its model, its data, its directory."""

  workdir: str
  params: Params
  data_id: str  # of the data of that run
  digest: str  # of the file: with another model it is another run


def load_start(
  workdir: str, model: str, image_shape: tuple, task: Task
) -> Start:
  """Return the final global model of this run, for a model and its task."""
  run_dir.load_result(workdir)  # refuses a run that is not finished
  path = pathlib.Path(workdir) / run_dir.MODEL
  if not path.is_file():
    raise bad_input(
      'init_from',
      got=str(workdir),
      expected=f'a run with a global model, {run_dir.MODEL}',
      cause='a method without one, a run whose views had no "initial", or a '
      'copy without model/',
    )
  params, about = model_file.load_model(path)
  fields = ('model', 'num_classes', 'image_shape')
  if not {*fields} <= {*about}:
    raise bad_input(
      'init_from',
      got=f'{path}, described as {about}',
      expected=f'a model with its {", ".join(fields)}',
      cause='a file that was not written by a run',
    )
  like = jax.eval_shape(task.init, jax.random.key(0))
  got = _describe(*(about[name] for name in fields), params)
  want = _describe(model, task.num_classes, image_shape, like)
  if got != want or _shapes(params) != _shapes(like):
    raise bad_input(
      'init_from',
      got=f'{workdir}, {got}',
      expected=want,
      cause='the run of another data set or model',
    )
  params = jax.tree.map(
    lambda leaf, wanted: jnp.asarray(leaf, wanted.dtype), params, like
  )
  data_id = run_dir.load_config(workdir)['data']
  return Start(str(workdir), params, data_id, run_dir.model_digest(workdir))


def identity_with(algorithm: str, data: Any, start: Start) -> str:
  """Return the fingerprint of the data and of the first parameters.

  Refuses another partition where a client would get the model of another one,
  or where that run may have trained on what this one keeps for choosing, or on
  examples of clients who come later.
  """
  module = algorithms.load(algorithm)
  is_bound = getattr(module, 'SAME_CLIENTS_AS_START', False)
  of_start = start.data_id.partition('+')[0]
  kept_apart = data.validation is not None or data.unseen is not None
  if (is_bound or kept_apart) and of_start != data.data_id:
    raise bad_input(
      'init_from',
      got=f'{start.workdir}, on the data {of_start}',
      expected=f'a run on the data of this one, {data.data_id}: the same '
      'images, with the same partition',
      cause='another seed, partition, validation_fraction, number of clients '
      'or of examples',
    )
  return f'{data.data_id}+{start.digest}'


def _shapes(params: Params) -> dict[str, tuple]:
  shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
  return dict(zip(trees.leaf_names(params), shapes, strict=True))


def _describe(
  model: str, num_classes: int, image_shape: tuple, params: Params
) -> str:
  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  pixels = 'x'.join(map(str, image_shape))
  return (
    f'a {model} for {num_classes} classes of {pixels} images, '
    f'{size:,} parameters'
  )
