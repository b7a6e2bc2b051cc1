"""Run a function for every client: chunk by chunk, divided over devices.

Rows are sorted by size before they come here. With a mesh they are assigned to
the devices in turn, so that every device has small clients and large ones and
all end at about the same time. Each device runs its clients, and an all-gather
then gives every device the results of all of them. It moves C uploads where a
sum over devices would move two, which a fast link does in less time than a
client takes for one step; in return no sum depends on the number of devices.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.federated.cohort import Cohort
from fedjax_pfl.federated.sharding import AXIS


def map_clients(
  fn: Callable[[PyTree, PyTree], PyTree],
  shared: PyTree,
  rows: PyTree,
  chunk: int,
  mesh: Mesh | None = None,
) -> PyTree:
  """Return fn(shared, row) of every row [C, ...].

  `chunk` clients run at the same time on each device. Where the rows do not
  divide evenly, the first devices get a dummy client without examples, whose
  results are dropped.
  """
  if mesh is None:
    return map_chunks(partial(fn, shared), rows, chunk)
  size = jax.tree.leaves(rows)[0].shape[0]
  order = device_order(size, mesh.size)

  def run_share(shared, rows):
    row_fn = partial(fn, shared)
    if chunk == 1:  # no client axis even for a single row: the same bits
      results = lax.map(row_fn, rows)
    else:
      results = map_chunks(row_fn, rows, chunk)
    return jax.tree.map(
      lambda leaf: lax.all_gather(leaf, AXIS, tiled=True), results
    )

  results = jax.shard_map(
    run_share,
    mesh=mesh,
    in_specs=(Spec(), Spec(AXIS)),
    out_specs=Spec(),
    check_vma=False,  # the carry of a loop begins equal on all and then differs
  )(shared, _with_dummies(rows, order))
  return trees.gather(results, np.argsort(order)[len(order) - size :])


def map_chunks(fn: Callable, rows: PyTree, chunk: int) -> PyTree:
  """Return fn of every row [C, ...], `chunk` rows at the same time.

  A chunk of one has no client axis: its loops stop where the client's own data
  end, and its products are not batched.
  """
  size = jax.tree.leaves(rows)[0].shape[0]
  if chunk >= size:
    return jax.vmap(fn)(rows)
  if chunk == 1:
    return lax.map(fn, rows)
  return lax.map(fn, rows, batch_size=chunk)


def device_order(size: int, num_devices: int) -> np.ndarray:
  """Return the rows of the first device, of the second, ...; -1: a dummy.

  >>> device_order(5, 2)  # the first device runs rows 1 and 3
  array([-1,  1,  3,  0,  2,  4])
  """
  dummies = -size % num_devices
  in_turn = np.arange(-dummies, size).reshape(-1, num_devices)
  return np.maximum(in_turn.T.ravel(), -1)


def _with_dummies(rows: PyTree, order: np.ndarray) -> PyTree:
  """Return the rows in this order; a dummy is row 0, without its examples."""
  ordered = trees.gather(rows, np.maximum(order, 0))
  if isinstance(ordered, Cohort):
    return ordered._replace(count=jnp.where(order < 0, 0, ordered.count))
  return ordered
