"""Momentum that outlives a round: two rounds are one fit of twice the epochs.

Without random numbers, at a constant rate, on one client.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  make_data,
  make_task,
  play,
)

from fedjax_pfl.client import local_training
from fedjax_pfl.core import trees
from fedjax_pfl.federated.rounds import init_states

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data((9,))  # two batches and one of a single example
TASK = make_task(noise=0)
PLAIN = TRAIN._replace(
  epochs=2, learning_rate=optax.constant_schedule(0.05), shuffle=False
)


def played(name, **hp):
  stages = build(name, TASK, train=PLAIN, **hp)
  server, clients, _ = play(stages, DATA, rounds=2, cohort=(0,))
  start, _ = init_states(stages[0].algorithm, DATA, KEY(1))
  return start.params, server, clients


def one_fit(start, epochs):
  params, _ = local_training.fit(
    TASK.loss,
    start,
    client_of(DATA, 0),
    KEY(0),
    tx=PLAIN.sgd(jnp.zeros((), int)),
    batching=local_training.Batching(
      BATCH, epochs, TASK.augment, shuffle=False
    ),
  )
  return params


@pytest.mark.long
def test_centralized_rounds_are_one_fit():
  start, server, _ = played('centralized')
  assert_close(server.params, one_fit(start, 4))


def test_centralized_may_begin_anew_in_every_round():
  start, server, _ = played('centralized', keep_momentum=False)
  assert_close(server.params, one_fit(one_fit(start, 2), 2))
  assert server.opt_state == ()


def test_local_only_rounds_are_one_fit():
  start, server, clients = played('local_only')
  assert_close(trees.gather(clients.params, 0), one_fit(start, 4))
  assert_same_bits(server.params, start)


@pytest.mark.parametrize(
  ('part', 'frozen'), [('body', 'head'), ('head', 'body')]
)
def test_a_frozen_part_does_not_decay(part, frozen):
  assert PLAIN.weight_decay > 0
  start, server, _ = played('centralized', trainable=part)
  assert_same_bits(server.params[frozen], start[frozen])
  moved = jax.tree.map(
    lambda one, other: np.abs(one - other).max(),
    server.params[part],
    start[part],
  )
  assert min(jax.tree.leaves(moved)) > 1e-3
