"""Meshes of devices: how many a round uses, and functions that run on them.

Divided over a mesh are the work for each client and its state (client_map.py).
Server, images and tables of indices are copied to every device. Processes of
several hosts: training/multihost.py.

On a CPU a round runs on a device a core, or on one device whose threads divide
the work of each client, whichever is faster. Of C clients on D devices

  C / ceil(C / D)       are trained at the same time: all devices take as many
                        turns as the one with the most clients

  1 / (1 - p + p / D)   is the speed of one client on D threads instead of one,
                        which divide the part p = DIVIDED of its work

and the larger number says which.
"""

import weakref
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.target import compiler_options, target
from fedjax_pfl.core.types import Array, PyTree

AXIS = 'clients'
DIVIDED = 0.6  # measured: 0 to 0.64; docs/dev/performance_notes.md


def choose_devices(num_clients: int) -> int:
  """Return how many devices of this process train so many clients.

  All, but on a CPU the `fastest_number` of them; several processes share the
  work as they were started.
  """
  available = jax.local_device_count()
  if target() != 'cpu' or jax.process_count() > 1:
    return available
  return fastest_number(num_clients, available)


def fastest_number(num_clients: int, cores: int) -> int:
  """Return on how many devices, at most one a core, a round is fastest."""
  turns = -(-num_clients // cores)
  threads = 1 / (1 - DIVIDED + DIVIDED / cores)
  return -(-num_clients // turns) if num_clients / turns > threads else 1


def num_places(size: int, num_devices: int) -> int:
  """Return the next multiple of the devices."""
  return -(-size // num_devices) * num_devices


def local_devices(number: int) -> list[jax.Device]:
  """Return so many devices of this process, 0: all; refuse more."""
  available = jax.local_device_count()
  Rule(
    lambda value: value <= available,
    f'a number of devices that this machine has: up to {available}',
    'another machine, devices that CUDA_VISIBLE_DEVICES hides, or on a CPU '
    'more than it has cores (in a notebook: set jax_num_cpu_devices)',
    range(available + 1),
  ).check('devices', number)
  return jax.local_devices()[: number or None]


def devices_of_run(number: int) -> list[jax.Device]:
  """Return the first `number` devices of every process; 0: all."""
  number = len(local_devices(number))
  return [
    device
    for process in range(jax.process_count())
    for device in jax.local_devices(process)[:number]
  ]


def make_mesh(devices: int = 0) -> Mesh | None:
  """Return the mesh of the first `devices` devices of every process; 0: all.

  None if that is a single device.
  """
  used = devices_of_run(devices)
  return Mesh(np.array(used), (AXIS,)) if len(used) > 1 else None


def describe(mesh: Mesh | None) -> str:
  """Return the line that a run logs about its devices; '' of a single one."""
  if mesh is None:
    is_chosen = target() == 'cpu' and jax.local_device_count() > 1
    return is_chosen * 'One device: its threads divide the work of each client.'
  n, kind = jax.process_count(), mesh.devices.flat[0].device_kind
  where = f' of {n} processes' * (n > 1) + f' ({kind})'
  return f'{mesh.size} devices{where}: each trains its share of a cohort.'


# ---- Functions on a mesh -----------------------------------------------------


def on_mesh(fn: Callable, mesh: Mesh, in_specs: PyTree, out_specs: PyTree):
  """Return fn of what each device has of its arguments: `jax.shard_map`."""
  # The carry of a loop begins equal on all and then differs.
  return jax.shard_map(
    fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
  )


def replicate(
  fn: Callable,
  mesh: Mesh | None,
  divided: int | None = None,
  *,
  reused: tuple[int, ...] = (),
) -> Callable:
  """Return fn, compiled for the devices of a mesh, on arrays of this process.

  Arguments are copied to all devices, once as long as they live; results are
  the copies of this process. What is divided over the devices stays so; the
  argument in place `divided` is made so where its rows can be dealt equally.
  Results take the memory of the arguments in places `reused`. Every process has
  to call it, with the same values.
  """
  options = compiler_options()
  if mesh is None and options is None and not reused:
    return fn
  compiled = jax.jit(fn, compiler_options=options, donate_argnums=reused)

  def call(*args):
    if trees.is_traced(args):  # a part of a larger program
      return fn(*args)
    if mesh is None:
      return compiled(*args)
    whole, args = NamedSharding(mesh, Spec()), list(args)
    if divided is not None:
      args[divided] = _divide(args[divided], mesh)
    copies = jax.tree.map(lambda leaf: replicated(leaf, whole), args)
    return jax.tree.map(local_copy, compiled(*copies))

  return call


class PerSize:
  """A function of (server, clients, ids [.., C], ..), made once for each C.

  `make_fn` gets its devices: `mesh`, or if that is 'auto' those of C clients.
  """

  def __init__(
    self, make_fn: Callable[[Mesh | None], Callable], mesh: Mesh | str | None
  ):
    self.mesh = mesh
    self._fn_of = cache(lambda size, mesh: make_fn(mesh))

  def __call__(self, server, clients, ids, *args):
    ids, mesh = jnp.asarray(ids), self.mesh
    size = ids.shape[-1]
    if mesh == 'auto':
      mesh = make_mesh(choose_devices(size))
      clients = _divided_by_none_but(mesh, clients)
    return self._fn_of(size, mesh)(server, clients, ids, *args)


def is_divided(leaf: Any) -> bool:
  """Return whether no device has all of this array."""
  return isinstance(leaf, Array) and not leaf.sharding.is_fully_replicated


def _divided_by_none_but(mesh: Mesh | None, tree: PyTree) -> PyTree:
  """Return the tree, gathered where it is divided over other devices."""
  devices = set() if mesh is None else {*mesh.devices.flat}

  def whole(leaf):
    if not is_divided(leaf) or leaf.sharding.device_set == devices:
      return leaf
    return jax.device_put(leaf, jax.devices()[0])

  return tree if trees.is_traced(tree) else jax.tree.map(whole, tree)


# (id of a local array, sharding) -> (the array, its replicated copies). An
# entry is removed with its array.
_copies: dict[tuple, tuple[weakref.ref, Array]] = {}


def replicated(leaf: Any, whole: NamedSharding) -> Any:
  """Return the array with a copy on all devices of the mesh, if undivided."""
  if is_divided(leaf):
    return leaf
  leaf = jnp.asarray(leaf)
  if getattr(leaf, 'weak_type', False) and not leaf.ndim:
    return leaf.item()  # an array of a mesh would be promoted differently
  if (id(leaf), whole) in _copies:
    return _copies[id(leaf), whole][1]
  devices = whole.mesh.local_devices
  # The devices of a CPU share its memory: of a view they make no copy.
  is_viewed = _is_viewed(leaf, devices)
  source = np.asarray(leaf) if is_viewed else leaf
  copies = [jax.device_put(source, device) for device in devices]
  made_of = jax.make_array_from_single_device_arrays
  result = made_of(leaf.shape, whole, copies)
  if not is_viewed:
    _remember(leaf, result)
  return result


def local_copy(result: Array) -> Array:
  """Return this process's copy of a replicated array, and remember both."""
  if is_divided(result):
    return result
  data = result.addressable_data(0)  # held by `result`: not a new object
  if _is_viewed(data, [data.device]):
    return jax.device_put(np.asarray(data))  # bound to no device
  made_of = jax.make_array_from_single_device_arrays
  leaf = made_of(data.shape, data.sharding, [data])
  _remember(leaf, result)
  return leaf


def _is_viewed(leaf: Array, devices: Collection[jax.Device]) -> bool:
  """Return whether numpy shows the array without a copy: on CPUs, no keys."""
  is_number = not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
  return is_number and {device.platform for device in devices} == {'cpu'}


def _divide(tree: PyTree, mesh: Mesh) -> PyTree:
  """Return the rows divided over the mesh, where that is even."""
  divided = NamedSharding(mesh, Spec(AXIS))

  def divide(leaf):
    if is_divided(leaf) or not np.ndim(leaf) or len(leaf) % mesh.size:
      return leaf
    is_viewed = _is_viewed(leaf, mesh.devices.flat)
    return jax.device_put(np.asarray(leaf) if is_viewed else leaf, divided)

  return jax.tree.map(divide, tree)


def _remember(leaf: Array, result: Array) -> None:
  entry, remove = (id(leaf), result.sharding), _copies.pop
  _copies[entry] = weakref.ref(leaf, lambda _: remove(entry, None)), result
