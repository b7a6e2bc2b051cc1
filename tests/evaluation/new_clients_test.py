"""What a client has that comes after training, by two methods.

It has one batch, so that the order of its examples does not matter.
"""

import jax
import jax.numpy as jnp
import pytest
from helpers import (
  KEY,
  assert_close,
  build,
  client_of,
  make_data,
  make_task,
  round_of,
)

from fedjax_pfl.core import trees
from fedjax_pfl.evaluation.new_clients import with_new_clients

DATA = make_data((3, 4, 2))  # client 1 has a whole batch
pytestmark = pytest.mark.usefixtures('float64', 'quick_compiler')


@pytest.mark.parametrize('name', ['fedrep', 'ditto'])
def test_a_new_client_does_what_one_does_in_the_first_round(name):
  (stage,) = build(name, make_task(noise=0.0))
  method, new = stage.algorithm, client_of(DATA, 1)
  server = method.init_server(KEY(3))
  moved = jax.tree.map(lambda leaf: 0.9 * leaf + 0.05, server.params)
  if method.global_model is None:  # of a private head it has the first
    moved = {**moved, 'head': server.params['head']}
  server = server._replace(params=moved)
  begun = method.init_client(server, new, KEY(1))
  rows = trees.stack([begun] * 3)
  _, rows, _ = round_of(stage)(server, rows, jnp.array([1]), DATA, KEY(2))
  later = server._replace(round=jnp.asarray(2))
  personalize, given = jax.jit(method.personalize), (new, KEY(9))
  before = personalize(later, begun, *given)
  want = personalize(later, trees.gather(rows, 1), *given)
  of_new = with_new_clients(stage).algorithm
  assert of_new.init_client(later, new, KEY(1)) == ()
  assert_close(jax.jit(of_new.personalize)(later, (), *given), want)
  view = 'initial' if name == 'fedrep' else 'personal'
  gap = before[view]['head']['kernel'] - want[view]['head']['kernel']
  assert jnp.abs(gap).max() > 1e-3
