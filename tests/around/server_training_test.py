"""Training of the server on data of its own, after the aggregation."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import (
  ALGORITHMS,
  BATCH,
  KEY,
  TRAIN,
  assert_close,
  build,
  make_data,
  make_task,
  refused,
  round_of,
)

from fedjax_pfl.around import server_training
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.server_training import ServerTraining
from fedjax_pfl.client import local_training
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated.cohort import all_send, server_data
from fedjax_pfl.federated.rounds import begin

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
POOL = len(DATA.y)
# 9 of 30: three batches.
SHARE = ServerTraining(0.3, 'full', make_task(), TRAIN, seed=4)


def shared(name, part='full'):
  """Return the one stage of a method whose server shares data."""
  (stage,) = around(
    build(name), Around(server_training=SHARE._replace(part=part))
  )
  return stage


# ---- the rows --------------------------------------------------------------


def test_rows_are_the_floor_of_a_share_and_distinct():
  for fraction, size, number in ((0.05, 50_000, 2500), (0.29, 100, 29)):
    rows = server_training.shared_rows(0, fraction, size)
    assert len(rows) == len(set(rows.tolist())) == number
    assert rows.min() >= 0 and rows.max() < size


# ---- the training ----------------------------------------------------------


def test_server_training_is_a_fit():
  """At 0.02, of the second round; the first has 0.2, the third 0.002."""
  task, stage = make_task(), shared('fedavg')
  server = stage.algorithm.init_server(KEY(1))
  server = server._replace(round=jnp.ones_like(server.round))
  same = jax.tree.map(lambda leaf: leaf[None], server.params)
  shared_data = server_data(stage.algorithm, DATA)
  who = jnp.zeros(1, int), jnp.ones(1, int)
  senders = all_send(*who, DATA, of_server=shared_data)
  rows = server_training.shared_rows(SHARE.seed, SHARE.fraction, POOL)
  assert len(rows) == 9
  own = ClientData(DATA.x, DATA.y, jnp.asarray(rows), jnp.array(9))
  tx = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.02, 0.9))
  batching = local_training.Batching(BATCH, 1, task.augment)
  want, info = jax.jit(
    lambda params, data: local_training.fit(
      task.loss, params, data, KEY(3), tx=tx, batching=batching
    )
  )(server.params, own)
  assert info.num_steps == 3
  senders = senders._replace(rng=KEY(3))
  got = jax.jit(
    lambda server: stage.algorithm.aggregate(server, same, senders)
  )(server)
  assert got.round == 2
  assert_close(got.params, want)
  moved = jax.tree.map(
    lambda *two: abs(two[0] - two[1]).max(), *(got.params, server.params)
  )
  assert min(jax.tree.leaves(moved)) > 1e-3


# ---- which methods ---------------------------------------------------------


@pytest.mark.parametrize('name', ALGORITHMS)
def test_every_method_is_accepted_or_raises_bad_input(name):
  """Accepted are those whose clients begin with the server's whole model."""
  try:
    stage = shared(name)
  except BadInput as error:
    words = 'server_data_fraction: got 0.3, expected 0 for this'
    assert str(error).startswith(words)
    return
  assert stage.algorithm.global_model
  states = jax.eval_shape(partial(begin, stage), DATA, KEY(0))
  server, cohort = states[0], jnp.arange(2)
  after, *_ = jax.eval_shape(round_of(stage), *states, cohort, DATA, KEY(0))
  assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, server)


def test_frozen_leaves_are_not_trained_by_the_server():
  stages = build('partial', frozen='body/bias', personal=())
  message = refused(around, stages, Around(server_training=SHARE))
  assert 'a frozen part, which each client gets once' in message
