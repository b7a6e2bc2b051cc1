"""Meshes of devices, and functions that run on all devices of one.

Divided over a mesh are the work for each client and its state (mesh_round.py).
Server, images and tables of indices are copied to every device, and what does
not depend on a single client is computed alike on all of them. Processes of
several hosts: training/multihost.py.
"""

import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array
from fedjax_pfl.federated.row_exchange import AXIS


def make_mesh(devices: int = 0) -> Mesh | None:
  """Return the mesh of the first `devices` devices of every process; 0: all.

  None if that is a single device.

  >>> round_fn = make_round(algorithm, mesh=make_mesh())
  """
  available = jax.local_device_count()
  if devices > available:
    raise bad_input(
      'devices',
      got=devices,
      expected=f'a number of devices that this machine has: up to {available}',
      choices=[0, *range(1, available + 1)],
      cause='another machine, devices that CUDA_VISIBLE_DEVICES hides, or on a '
      'CPU more than it has cores (in a notebook: set jax_num_cpu_devices)',
    )
  by_process: dict[int, list] = {}
  for device in jax.devices():
    by_process.setdefault(device.process_index, []).append(device)
  used = [
    device
    for local in by_process.values()
    for device in local[: devices or None]
  ]
  return Mesh(np.array(used), (AXIS,)) if len(used) > 1 else None


def describe(mesh: Mesh | None) -> str:
  """Return the line that a run logs about its devices; '' without a mesh.

  >>> describe(mesh)
  '8 devices of 2 processes (NVIDIA H100): each trains its share of a cohort.'
  """
  if mesh is None:
    return ''
  processes = jax.process_count()
  where = f' of {processes} processes' if processes > 1 else ''
  kind = mesh.devices.flat[0].device_kind
  return (
    f'{mesh.size} devices{where} ({kind}): each trains its share of a cohort.'
  )


def replicate(fn: Callable, mesh: Mesh | None) -> Callable:
  """Return fn, compiled for the devices of a mesh, on arrays of this process.

  Arguments are copied to all devices, once as long as they live (the images
  are not moved again); results are the copies of this process. What is divided
  over the devices, as the states of clients are (placement.py), stays so.
  Every process has to call it, with the same values.

  >>> rounds_fn = replicate(make_rounds(make_round(algorithm, mesh=mesh)), mesh)
  """
  if mesh is None:
    return fn
  replicated, compiled = NamedSharding(mesh, Spec()), jax.jit(fn)

  def call(*args):
    if trees.is_traced(args):  # a part of a larger program
      return fn(*args)
    copies = jax.tree.map(lambda leaf: _replicated(leaf, replicated), args)
    return jax.tree.map(_local_copy, compiled(*copies))

  return call


def is_divided(leaf: Any) -> bool:
  """Return whether no device has all of this array."""
  return isinstance(leaf, Array) and not leaf.sharding.is_fully_replicated


# (id of a local array, sharding) -> (the array, its replicated copies). An
# entry is removed with its array.
_copies: dict[tuple, tuple[weakref.ref, Array]] = {}


def _replicated(leaf: Any, replicated: NamedSharding) -> Any:
  """Return the array with a copy on all devices of the mesh, if undivided."""
  if is_divided(leaf):
    return leaf
  leaf = jnp.asarray(leaf)
  if getattr(leaf, 'weak_type', False) and not leaf.ndim:
    return leaf.item()  # an array of a mesh would be promoted differently
  known = _copies.get((id(leaf), replicated))
  if known is not None:
    return known[1]
  copies = [
    jax.device_put(leaf, device) for device in replicated.mesh.local_devices
  ]
  result = jax.make_array_from_single_device_arrays(
    leaf.shape, replicated, copies
  )
  _remember(leaf, result)
  return result


def _local_copy(result: Array) -> Array:
  """Return this process's copy of a replicated array, and remember both."""
  if is_divided(result):
    return result
  data = result.addressable_data(0)  # held by `result`: not a new object
  leaf = jax.make_array_from_single_device_arrays(
    data.shape, data.sharding, [data]
  )
  _remember(leaf, result)
  return leaf


def _remember(leaf: Array, result: Array) -> None:
  entry, remove = (id(leaf), result.sharding), _copies.pop
  _copies[entry] = weakref.ref(leaf, lambda _: remove(entry, None)), result
