"""Where a run's arrays lie on devices: shapes with a sharding, not arrays.

  states of clients      divided over the mesh, device d owns the rows from
                         d K'/D on, K' = K rounded up to a multiple of D
  all other arguments    on every device

as `federated/mesh_states.py` and `federated/sharding.py` place them.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core.types import PyTree
from fedjax_pfl.federated.dealing import num_places
from fedjax_pfl.federated.sharding import AXIS

Arguments = dict[str, PyTree]  # by name; 'clients' are their states [K, ...]


def make_mesh(devices: Sequence[Any]) -> Mesh | None:
  """Return the mesh of these devices; None of one."""
  return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def place(arguments: Arguments, devices: Sequence[Any]) -> Arguments:
  """Return the shapes of the arguments, placed as a run places them."""
  mesh = make_mesh(devices)
  if mesh is None:
    everywhere = SingleDeviceSharding(devices[0])
  else:
    everywhere = NamedSharding(mesh, Spec())
  placed = {name: _on(everywhere, tree) for name, tree in arguments.items()}
  if mesh is not None and 'clients' in arguments:
    clients = _with_rows(arguments['clients'], mesh.size, 1)
    placed['clients'] = _on(NamedSharding(mesh, Spec(AXIS)), clients)
  return placed


def share(arguments: Arguments, devices: Sequence[Any]) -> Arguments:
  """Return the shapes of what one of these devices has, on the first."""
  size = len(devices)
  clients = _with_rows(arguments['clients'], size, size)
  return place({**arguments, 'clients': clients}, devices[:1])


def _with_rows(clients: PyTree, num_devices: int, parts: int) -> PyTree:
  """Return the shapes of the padded states, or of one of equal parts."""

  def resize(leaf):
    rows = num_places(leaf.shape[0], num_devices) // parts
    return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype)

  return jax.tree.map(resize, clients)


def _on(where: Sharding, tree: PyTree) -> PyTree:
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
    tree,
  )
