"""A model divided over devices: a mesh [clients, model] of G x M of them.

A round is the program of one device (cohort.py), which the compiler divides.
While a function is traced inside `dividing`,

  divide(tree)  divides parameters, and what has their paths, over M devices by
                the table of the model; other arrays are whole on each of them
  groups()      is G: so many clients run at the same time, step by step

Elsewhere they are the identity, and 1.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.types import PyTree, Task
from fedjax_pfl.federated.sharding import AXIS

MODEL = 'model'


class Division(NamedTuple):
  """How a model is divided over the devices of a mesh."""

  mesh: Mesh  # [clients, model]
  table: Mapping[str, int]  # pattern of paths -> the axis that is divided

  def shardings(self, tree: PyTree, *, rows: bool = False) -> PyTree:
    """Return where each array lies; with `rows` its first axis are clients."""
    number, of_each = self.mesh.devices.shape

    def sharding_of(path, leaf):
      shape = np.shape(leaf)
      axes, name = [None] * len(shape), trees.leaf_name(path)
      axis = divided_axis(self.table, name, shape[rows:], of_each)
      if axis is not None:
        axes[axis] = MODEL
      if rows and shape[0] % number == 0:
        axes[0] = AXIS
      return NamedSharding(self.mesh, Spec(*axes))

    return jax.tree.map_with_path(sharding_of, tree)

  def shapes(self, tree: PyTree, *, rows: bool = False) -> PyTree:
    """Return the shapes of arrays that lie where they belong."""
    return jax.tree.map(
      lambda leaf, at: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=at
      ),
      *(tree, self.shardings(tree, rows=rows)),
    )

  def bytes_of(self, tree: PyTree) -> int:
    """Return the bytes of a tree, or of one of shapes, on each device."""
    _, of_each = self.mesh.devices.shape
    total = 0
    for name, leaf in trees.named(tree).items():
      axis = divided_axis(self.table, name, leaf.shape, of_each)
      total += trees.num_bytes(leaf) // (1 if axis is None else of_each)
    return total

  def divide(self, tree: PyTree, *, rows: bool = False) -> PyTree:
    """Return the tree, which is traced, with its arrays where they belong."""
    shardings = self.shardings(tree, rows=rows)
    return lax.with_sharding_constraint(tree, shardings)


def divided_axis(
  table: Mapping[str, int], name: str, shape: tuple[int, ...], number: int
) -> int | None:
  """Return the axis of the first pattern for the name, if `number` divides it.

  >>> divided_axis({'*/kernel': -1}, 'head/kernel', (64, 10), 5)
  -1
  """
  axes = (axis for pattern, axis in table.items() if fnmatchcase(name, pattern))
  axis = next(axes, None)
  if axis is None or len(shape) < -axis or shape[axis] % number:
    return None
  return axis


def model_mesh(devices: Sequence[jax.Device], model_devices: int) -> Mesh:
  """Return the mesh of these devices, `model_devices` in each group."""
  number = len(devices)
  Rule(
    lambda value: number % value == 0,
    f'a number that divides the {number} devices of the run',
    'more devices than there are, or `devices`, which says how many it has',
    [value for value in range(1, number + 1) if number % value == 0],
  ).check('model_devices', model_devices)
  return Mesh(np.reshape(devices, (-1, model_devices)), (AXIS, MODEL))


def check_table(task: Task, model_devices: int) -> None:
  """Refuse devices that divide no parameter of the model."""
  params = jax.eval_shape(lambda: task.init(jax.random.key(0)))

  def divides(number):
    axis_of = partial(divided_axis, task.divided, number=number)
    leaves = trees.named(params).items()
    axes = [axis_of(name, leaf.shape) for name, leaf in leaves]
    return number == 1 or any(axis is not None for axis in axes)

  Rule(
    divides,
    'a number that divides the axis of a parameter which the table of the '
    f'model names: {dict(task.divided)}',
    'layers with other widths, or a module whose parameters have other names: '
    'its attribute `divided` is a table of its own',
    [number for number in range(1, model_devices + 1) if divides(number)],
  ).check('model_devices', model_devices)


_DIVISION = contextvars.ContextVar('division', default=None)


@contextlib.contextmanager
def dividing(division: Division) -> Iterator[None]:
  """Trace what is inside for these devices."""
  token = _DIVISION.set(division)
  try:
    yield
  finally:
    _DIVISION.reset(token)


def divide(tree: PyTree) -> PyTree:
  """Return the tree of one client or of the server, divided by the table."""
  division = _DIVISION.get()
  return tree if division is None else division.divide(tree)


def groups() -> int:
  """Return how many clients, or chunks of them, run at the same time."""
  division = _DIVISION.get()
  return 1 if division is None else division.mesh.shape[AXIS]
