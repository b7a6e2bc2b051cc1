"""Deal the clients of a cohort to the devices of a mesh.

Sorted by size and dealt in turn, so that every device has small clients and
large ones and all end at about the same time. Where all K clients take part,
each device runs those whose states it owns, and no state moves.

All devices have the same number of places. Those that are left over are the
last ones: clients without examples, whose results are dropped.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.federated.cohort import by_size


class Deal(NamedTuple):
  """Which client is in which place: those of the first device come first."""

  ids: Array  # [places]
  count: Array  # [places] examples; 0 in the places that are left over
  position: Array  # [C] the place of every client of the cohort
  at_home: bool  # whether each device has the clients that it owns

  @property
  def size(self) -> int:
    return self.position.shape[0]


def num_places(size: int, num_devices: int) -> int:
  """Return how many places that is: the next multiple of the devices."""
  return -(-size // num_devices) * num_devices


def pad_rows(clients: PyTree, size: int) -> PyTree:
  """Return the rows [K, ...] as [size, ...], filled up with the last one."""

  def pad(leaf):
    missing = size - leaf.shape[0]
    if not missing:
      return leaf
    last = jnp.broadcast_to(leaf[-1:], (missing, *leaf.shape[1:]))
    return jnp.concatenate([leaf, last])

  return jax.tree.map(pad, clients)


def device_order(size: int, num_devices: int) -> np.ndarray:
  """Return the rows of the first device, of the second, ...: [C].

  >>> device_order(5, 2)  # the first device runs rows 0, 1 and 3
  array([0, 1, 3, 2, 4])
  """
  share = -(-size // num_devices)
  used = -(-size // share)
  left_over = used * share - size  # of the last device, in its first turns
  places = np.ones((share, used), bool)
  places[:left_over, -1] = False
  rows = np.cumsum(places).reshape(share, used) - 1
  return rows.T[places.T]


def deal_in_turn(ids: Array, count: Array, num_devices: int) -> Deal:
  """Return the deal of a cohort [C]; `count` [K] are the examples of all."""
  order = by_size(ids, count)[device_order(ids.shape[0], num_devices)]
  deal = deal_as_given(ids[order], num_devices, count[ids[order]])
  return deal._replace(position=jnp.argsort(order))


def deal_as_given(ids: Array, num_devices: int, count: Array | int = 0) -> Deal:
  """Return the deal of clients in this order, filled up with the first."""
  size = ids.shape[0]
  left_over = num_places(size, num_devices) - size
  return Deal(
    jnp.concatenate([ids, jnp.broadcast_to(ids[:1], (left_over,))]),
    jnp.pad(jnp.broadcast_to(count, ids.shape), (0, left_over)),
    jnp.arange(size),
    at_home=False,
  )


def deal_at_home(ids: Array, count: Array, num_devices: int) -> Deal:
  """Return the deal of all K clients to their owners, each sorted by size.

  `ids` are all clients in any order.
  """
  size = num_places(count.shape[0], num_devices)
  everyone = jnp.arange(size).reshape(num_devices, -1)
  is_left_over = everyone >= count.shape[0]
  count = jnp.pad(count, (0, size - count.shape[0]))
  order = jnp.lexsort((everyone, count[everyone], is_left_over), axis=1)
  dealt = jnp.take_along_axis(everyone, order, 1).ravel()
  return Deal(dealt, count[dealt], jnp.argsort(dealt)[ids], at_home=True)
