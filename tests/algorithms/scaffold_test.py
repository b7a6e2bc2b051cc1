"""SCAFFOLD: what its cases do not say."""

import jax
import jax.numpy as jnp
import pytest
from helpers import KEY, assert_close, build, client_of, make_data, play

from fedjax_pfl.core import trees

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()
EMPTY = 2  # the client of the cohort that has no example


def test_first_round_of_scaffold_is_fedavgs():
  want, _, _ = play(build('fedavg'), DATA, rounds=1)
  got, variates, _ = play(build('scaffold'), DATA, rounds=1)
  assert_close(got.params, want.params)
  assert got.num_clients == len(DATA.count)
  # From the second round on all clients are corrected, also those that had
  # no part in the first: c is not zero, as the sum of the c_i is not.
  assert_close(got.total, jax.tree.map(lambda rows: rows.sum(0), variates))
  assert all(jnp.abs(leaf).max() > 0.01 for leaf in jax.tree.leaves(got.total))


def test_a_client_without_examples_has_no_variate():
  """Its T_i is 0; c, of which its variate would be less, is not."""
  _, variates, _ = play(build('scaffold'), DATA, rounds=2)
  for leaf in jax.tree.leaves(trees.gather(variates, EMPTY)):
    assert (leaf == 0).all()


def test_scaffold_sends_two_models_each_way():
  algorithm = build('scaffold')[0].algorithm
  server = jax.eval_shape(algorithm.init_server, KEY(0))
  client = jax.eval_shape(algorithm.init_client, server, DATA, KEY(0))
  down = jax.eval_shape(algorithm.download, server, client)
  _, up, _ = jax.eval_shape(
    algorithm.local_update, down, client, client_of(DATA, 0), KEY(0)
  )
  size = trees.num_bytes(server.params)
  assert trees.num_bytes(up) == 2 * size
  assert trees.num_bytes(down) == 2 * size + down.round.dtype.itemsize
