"""Warm start: a run begins with the final global model of another, or a file.

A run has to fit in all its leaves, a checkpoint of safetensors in all but those
of the head. Adapters that it lacks, and the head of a file, are drawn as usual.
"""

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.models.lora import is_adapter
from fedjax_pfl.models.public_checkpoints import SUFFIX, load_safetensors
from fedjax_pfl.runs import run_dir


class Start(NamedTuple):
  """What to start from: its model, its data, where it is."""

  path: str  # a directory, or a file
  params: Params  # None where the model is drawn
  data_id: str  # of the data of that run; '' of a file
  digest: str  # of the file: with another model it is another run

  def begin(self, task: Task, head_init: str = 'default') -> Task:
    """Return the task whose first parameters are those of the start.

    Refuses a way to draw the head where the start brings one. A bias of zero,
    the default of some configs, is replaced in silence.
    """
    params = self.params
    brings = jax.tree.leaves(trees.select(params, task.is_head))
    if brings and head_init != 'default':
      raise bad_input(
        'head_init',
        got=head_init,
        expected=f'default with init_from: the head is that of {self.path}',
        choices=['head_init=default', 'init_from=""'],
      )
    if trees.leaf_names(params) == trees.leaf_names(task.is_head):
      return task._replace(init=lambda key: params)
    return task._replace(init=lambda key: trees.combine(params, task.init(key)))

  def identify(self, method: ModuleType, data: Any) -> str:
    """Return the fingerprint of the data and of the first parameters.

    Refuses another partition where a client would get the model of another one,
    or where that run may have trained on what this one keeps for choosing, or
    on examples of clients who come later. What a file was trained on is not
    known.
    """
    is_bound = getattr(method, 'SAME_CLIENTS_AS_START', False)
    kept_apart = len(data.splits) > 2  # for choosing, or who come later
    of_start = self.data_id.partition('+')[0]
    if of_start and (is_bound or kept_apart) and of_start != data.data_id:
      raise bad_input(
        'init_from',
        got=f'{self.path}, on the data {of_start}',
        expected=f'a run on the data of this one, {data.data_id}: the same '
        'images, with the same partition',
      )
    return f'{data.data_id}+{self.digest}'


def load_start(
  path: str,
  model: str,
  image_shape: tuple,
  task: Task,
  log: Callable[[str], None] = lambda text: None,
) -> Start:
  """Return the model at this path, for a model and its task."""
  like = jax.eval_shape(task.init, jax.eval_shape(jax.random.key, 0))
  shapes, digest = _shapes(like), run_dir.model_digest(path)
  if path.endswith(SUFFIX):
    leaves, data_id = load_safetensors(path, model, shapes, log), ''
  else:
    params, of_run, data_id = run_dir.load_global_model(path)
    leaves = trees.named(params)
    about = model, task.num_classes, image_shape
    _check_run(path, leaves, of_run, about, shapes)
  _check_numbers(path, leaves)
  return Start(path, _holes(leaves, like), data_id, digest)


def _check_run(
  path: str,
  leaves: Mapping[str, Any],
  of_run: Mapping[str, Any],
  about: tuple[str, int, tuple],
  shapes: Mapping[str, tuple],
) -> None:
  """Refuse the model of a run that is another one, or of other data."""
  fields = ('model', 'num_classes', 'image_shape')
  if not {*fields} <= {*of_run}:
    got, names = f'{path}, described as {of_run}', ', '.join(fields)
    raise bad_input('init_from', got=got, expected=f'a model with its {names}')
  wanted = {
    name: shape
    for name, shape in shapes.items()
    if name in leaves or not is_adapter(name)
  }
  there = {name: leaf.shape for name, leaf in leaves.items()}
  got = _describe(*(of_run[name] for name in fields), there)
  want = _describe(*about, wanted)
  if got != want or there != wanted:
    raise bad_input('init_from', got=f'{path}, {got}', expected=want)


def _check_numbers(path: str, leaves: Mapping[str, Any]) -> None:
  """Refuse weights with which no training can begin."""
  for name, leaf in leaves.items():
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
    with np.errstate(over='ignore'):  # a large float64 is infinite in float32
      used = leaf.astype(np.float32)
    if is_float and np.isfinite(used).all():
      continue
    got = f'{path} with {name} {leaf.dtype}{[*leaf.shape]}'
    got += ', in which NaN or infinity stands' * is_float
    finite = (
      'finite floats in every leaf; quantised weights are converted first'
    )
    raise bad_input('init_from', got=got, expected=finite)


def _holes(leaves: dict[str, Any], like: Params) -> Params:
  """Return the leaves as a model, with None where one is missing."""
  names = iter(trees.leaf_names(like))

  def leaf(wanted):
    value = leaves.get(next(names))
    return None if value is None else jnp.asarray(value, wanted.dtype)

  return jax.tree.map(leaf, like)


def _shapes(params: Params) -> dict[str, tuple]:
  return {name: leaf.shape for name, leaf in trees.named(params).items()}


def _describe(
  model: str, num_classes: int, image_shape: tuple, shapes: dict[str, tuple]
) -> str:
  size = sum(map(math.prod, shapes.values()))
  inputs = f'{num_classes} classes of {"x".join(map(str, image_shape))} images'
  return f'a {model} for {inputs}, {size:,} parameters'
