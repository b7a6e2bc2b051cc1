"""States that travel between devices keep their bits."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import assert_same_bits
from jax.sharding import Mesh

from fedjax_pfl.federated.client_map import map_on_mesh
from fedjax_pfl.federated.dealing import deal_as_given
from fedjax_pfl.federated.row_exchange import AXIS

SINGLE = Mesh(np.array(jax.devices()[:1]), (AXIS,))


def test_a_mesh_of_one_device_returns_what_none_returns():
  """For leaves of every type and shape; -0.0 stays what it is."""
  clients = {
    'float': jnp.linspace(-1, 1, 8).reshape(4, 2).at[1, 0].set(-0.0),
    'int': jnp.arange(4),
    'bool': jnp.array([True, False, True, False]),
    'bfloat16': jnp.arange(12, dtype=jnp.bfloat16).reshape(4, 1, 3),
    'nan': jnp.full((4,), jnp.nan),
  }
  ids = jnp.array([3, 0, 1])

  def fn(shared, client, number):
    told = {**client, 'sum': shared + number + client['int']}
    return {**client, 'int': client['int'] + 10}, client['float'], told

  @jax.jit
  def mapped(shared, clients, numbers):
    dealt = deal_as_given(ids, 1)
    return map_on_mesh(fn, shared, clients, dealt, numbers, 1, SINGLE)

  new, uploads, told = mapped(jnp.array(7), clients, jnp.array([5, 6, 7]))
  rows = jax.tree.map(lambda leaf: leaf[ids], clients)
  assert_same_bits(told, {**rows, 'sum': jnp.array([15, 13, 15])})
  assert_same_bits(uploads, rows['float'])
  want = {**clients, 'int': jnp.array([10, 11, 2, 13])}
  assert_same_bits(new, want)
