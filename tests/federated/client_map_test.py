"""Rows that are mapped over chunks and devices; no result depends on either."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, make_data
from jax.sharding import Mesh

from fedjax_pfl.federated import client_map
from fedjax_pfl.federated.cohort import gather
from fedjax_pfl.federated.sharding import AXIS

SINGLE = Mesh(np.array(jax.devices()[:1]), (AXIS,))


@pytest.mark.parametrize(
  'size, devices', [(1, 8), (5, 8), (8, 8), (9, 8), (7, 2), (12, 3)]
)
def test_rows_are_assigned_to_devices_in_turn(size, devices):
  """Every row once; no device has two more than another, nor the large ones."""
  order = client_map.device_order(size, devices)
  assert len(order) % devices == 0 and len(order) - size < devices
  assert sorted(order[order >= 0]) == list(range(size))
  shares = order.reshape(devices, -1)
  totals = [share[share >= 0].sum() for share in shares]
  assert max(totals) - min(totals) <= size


def test_dummy_clients_have_no_examples():
  data = make_data()
  rows = gather((), jnp.array([4, 0, 5]), data)
  ordered = client_map._with_dummies(rows, client_map.device_order(3, 2))
  assert ordered.count.tolist() == [0, 7, 9, 5]


def test_a_mesh_of_one_device_returns_what_none_returns():
  """For leaves of every type."""
  rows = {
    'float': jnp.linspace(0, 1, 6).reshape(3, 2),
    'int': jnp.arange(3),
    'bool': jnp.array([True, False, True]),
    'bfloat16': jnp.arange(3, dtype=jnp.bfloat16),
  }

  def fn(shared, row):
    return {**row, 'sum': shared + row['int']}

  got, want = (
    client_map.map_clients(fn, jnp.array(7), rows, 1, mesh)
    for mesh in (SINGLE, None)
  )
  assert_same_bits(got, want)
