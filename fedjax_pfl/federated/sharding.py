"""Clients over several devices, of one process or of many (hosts.py).

Only what is done for each client is divided: its devices train or evaluate
their share of the cohort, and then every device is given what all of them have
found. The rest of a round is done alike on each of them, on a copy of server,
clients and images. So no sum depends on the number of devices, and a device
needs the memory that a single one would, less that of the clients it is spared.
An all-gather moves C uploads where a sum over devices would move two, which a
fast link does in less time than a client takes for one step.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.cohort import Cohort

AXIS = 'clients'


def make_mesh(devices: int = 0) -> Mesh | None:
  """Return the mesh of the first so many devices of every process; 0: of all.

  None where that is a single device in all: there is nothing to divide.

  >>> round_fn = make_round(algorithm, mesh=make_mesh())
  """
  there = jax.local_device_count()
  if devices > there:
    raise bad_input(
      'devices',
      got=devices,
      expected=f'a number of devices that this machine has: up to {there}',
      choices=[0, *range(1, there + 1)],
      cause='another machine, devices that CUDA_VISIBLE_DEVICES hides, or on a '
      'CPU no XLA_FLAGS=--xla_force_host_platform_device_count=N',
    )
  own: dict[int, list] = {}
  for device in jax.devices():
    own.setdefault(device.process_index, []).append(device)
  used = [one for several in own.values() for one in several[: devices or None]]
  return Mesh(np.array(used), (AXIS,)) if len(used) > 1 else None


def describe(mesh: Mesh | None) -> str:
  """Return what a run says of its devices: nothing of a single one.

  >>> describe(mesh)
  '8 devices of 2 processes (NVIDIA H100): each trains its share of a cohort.'
  """
  if mesh is None:
    return ''
  several = jax.process_count()
  where = f' of {several} processes' if several > 1 else ''
  kind = mesh.devices.flat[0].device_kind
  return (
    f'{mesh.size} devices{where} ({kind}): each trains its share of a cohort.'
  )


def map_clients(
  fn: Callable[[PyTree, PyTree], PyTree],
  shared: PyTree,
  rows: PyTree,
  chunk: int,
  mesh: Mesh | None = None,
) -> PyTree:
  """Return fn(shared, row) of every row [C, ...], `chunk` rows side by side.

  Rows are dealt to the devices in turn: of rows that are sorted by size every
  device has small ones and large ones, and all end at about the same time.
  Where that does not come out even, absent clients fill up: they have no
  examples, and what comes of them is dropped.
  """
  if mesh is None:
    return chunking.map_clients(partial(fn, shared), rows, chunk)
  size = jax.tree.leaves(rows)[0].shape[0]
  seats = deal(size, mesh.size)

  def share(shared, rows):
    one = partial(fn, shared)
    if chunk == 1:  # no client axis even for a single row: the same bits
      found = lax.map(one, rows)
    else:
      found = chunking.map_clients(one, rows, chunk)
    return jax.tree.map(
      lambda leaf: lax.all_gather(leaf, AXIS, tiled=True), found
    )

  found = jax.shard_map(
    share,
    mesh=mesh,
    in_specs=(Spec(), Spec(AXIS)),
    out_specs=Spec(),
    check_vma=False,  # a loop's carry begins alike and then differs: meant so
  )(shared, _seat(rows, seats))
  return trees.gather(found, np.argsort(seats)[len(seats) - size :])


def deal(size: int, num_devices: int) -> np.ndarray:
  """Return which row sits where, device after device; -1: an absent one.

  >>> deal(5, 2)  # the first device has rows 1 and 3
  array([-1,  1,  3,  0,  2,  4])
  """
  absent = -size % num_devices
  dealt = np.arange(-absent, size).reshape(-1, num_devices)
  return np.maximum(dealt.T.ravel(), -1)


def _seat(rows: PyTree, seats: np.ndarray) -> PyTree:
  """Return the rows in their seats; the absent are as row 0, or less."""
  seated = trees.gather(rows, np.maximum(seats, 0))
  if isinstance(seated, Cohort):
    return seated._replace(count=jnp.where(seats < 0, 0, seated.count))
  return seated


def spread(fn: Callable, mesh: Mesh | None) -> Callable:
  """Return fn, compiled for the devices of a mesh, on this process's arrays.

  What fn takes is copied to all devices, once as long as it lives (the images
  are not moved again), and what it returns is this process's copy of it. Every
  process has to call it, with the same values.

  >>> rounds_fn = spread(make_rounds(make_round(algorithm, mesh=mesh)), mesh)
  """
  if mesh is None:
    return fn
  everywhere = NamedSharding(mesh, Spec())
  compiled = jax.jit(fn, out_shardings=everywhere)

  def call(*arguments):
    if trees.is_traced(arguments):  # a part of a larger program
      return fn(*arguments)
    copies = jax.tree.map(lambda leaf: _copied(leaf, everywhere), arguments)
    return jax.tree.map(_own, compiled(*copies))

  return call


# An array of this process -> its copies on a mesh, as long as it lives.
_copies: dict[tuple, tuple[weakref.ref, Array]] = {}


def _copied(leaf: Any, everywhere: NamedSharding) -> Any:
  """Return the array with a copy on all devices of the mesh."""
  leaf = jnp.asarray(leaf)
  if getattr(leaf, 'weak_type', False) and not leaf.ndim:
    return leaf.item()  # as an array of a mesh it would promote differently
  known = _copies.get((id(leaf), everywhere))
  if known is not None:
    return known[1]
  copies = [
    jax.device_put(leaf, device) for device in everywhere.mesh.local_devices
  ]
  made = jax.make_array_from_single_device_arrays(
    leaf.shape, everywhere, copies
  )
  _remember(leaf, made)
  return made


def _own(made: Array) -> Array:
  """Return this process's copy of an array, which knows the others."""
  data = made.addressable_data(0)  # which `made` itself holds: not this object
  leaf = jax.make_array_from_single_device_arrays(
    data.shape, data.sharding, [data]
  )
  _remember(leaf, made)
  return leaf


def _remember(leaf: Array, made: Array) -> None:
  name, forget = (id(leaf), made.sharding), _copies.pop
  _copies[name] = weakref.ref(leaf, lambda _: forget(name, None)), made
