"""Warm start: a run starts with the final global model of another run."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.runs import model_file, run_dir

MODEL = 'model/global.npz'  # in a run directory


class Start(NamedTuple):
  """The run to start from: its model, its data, its directory."""

  workdir: str
  params: Params
  data_id: str  # of the data of that run
  digest: str  # of the file: with another model it is another run


def load_start(
  workdir: str, model: str, image_shape: tuple, task: Task
) -> Start:
  """Return the final global model of a finished run, for this task.

  >>> start = load_start('runs/fedavg', 'convnet4', (32, 32, 3), task)
  """
  run_dir.load_result(workdir)  # refuses a run that is not finished
  path = pathlib.Path(workdir) / MODEL
  if not path.is_file():
    raise bad_input(
      'init_from',
      got=str(workdir),
      expected=f'a run with a global model, {MODEL}',
      cause='a method without one, a run whose views had no "initial", or a '
      'copy without model/',
    )
  params, about = model_file.load_model(path)
  got = _read_about(path, about)
  want = model, task.num_classes, tuple(image_shape)
  like = jax.eval_shape(task.init, jax.random.key(0))
  if got != want or _shapes(params) != _shapes(like):
    raise bad_input(
      'init_from',
      got=f'{workdir}, {_describe(*got, params)}',
      expected=_describe(*want, like),
      cause='the run of another data set or model',
    )
  params = jax.tree.map(
    lambda leaf, wanted: jnp.asarray(leaf, wanted.dtype), params, like
  )
  data_id = run_dir.load_config(workdir)['data']
  return Start(str(workdir), params, data_id, model_digest(workdir))


def model_digest(workdir: str | os.PathLike) -> str:
  """Return the digest of the final global model of a run; '' without one.

  A copy of a run without model/ has it in result.json.
  """
  path = pathlib.Path(workdir) / MODEL
  if path.is_file():
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
  if (pathlib.Path(workdir) / run_dir.RESULT).is_file():
    with contextlib.suppress(BadInput):  # damaged: written again, from scratch
      return run_dir.load_result(workdir).get('model', '')
  return ''


def start_from(task: Task, start: Start) -> Task:
  """Return the task whose first parameters are those of the other run."""
  return task._replace(init=lambda key: start.params)


def name_data(data_id: str, start: Start) -> str:
  """Return the fingerprint of the data and of the first parameters."""
  return f'{data_id}+{start.digest}'


def check_same_clients(start: Start, data_id: str) -> None:
  """Refuse another partition: a client would get the model of another one."""
  of_start = start.data_id.partition('+')[0]
  if of_start == data_id:
    return
  raise bad_input(
    'init_from',
    got=f'{start.workdir}, on the data {of_start}',
    expected=f'a run on the data of this one, {data_id}: the same images, '
    'with the same partition',
    cause='another seed, partition, validation_fraction, number of clients or '
    'of examples',
  )


def _read_about(path: pathlib.Path, about: Mapping[str, Any]) -> tuple:
  """Return model, classes and image shape as the file has them."""
  try:
    return about['model'], about['num_classes'], tuple(about['image_shape'])
  except (KeyError, TypeError) as error:
    raise bad_input(
      'init_from',
      got=f'{path}, described as {about}',
      expected='a model with its name, number of classes and image shape',
      cause='a file that was not written by a run',
    ) from error


def _shapes(params: Params) -> dict[str, tuple]:
  leaves = jax.tree.leaves(params)
  return dict(
    zip(trees.leaf_names(params), [leaf.shape for leaf in leaves], strict=True)
  )


def _describe(
  model: str, num_classes: int, image_shape: tuple, params: Params
) -> str:
  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  pixels = 'x'.join(map(str, image_shape))
  return (
    f'a {model} for {num_classes} classes of {pixels} images, '
    f'{size:,} parameters'
  )
