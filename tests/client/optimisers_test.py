"""Optimisers of some leaves, or in some steps."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_same_bits,
  client_of,
  make_data,
  make_task,
)

from fedjax_pfl.client import local_training, optimisers
from fedjax_pfl.core import trees
from fedjax_pfl.core.trees import part_mask

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()
PARAMS = TASK.init(KEY(7))


def fit_part(tx):
  tree, _ = local_training.fit(
    TASK.loss,
    PARAMS,
    client_of(DATA, 0),
    KEY(0),
    tx=tx,
    batching=TRAIN.batching(TASK),
  )
  return tree


@pytest.mark.parametrize('part', ['body', 'head'])
def test_freeze_except_moves_its_part_alone(part):
  mask = part_mask(TASK, part)
  tree = fit_part(optimisers.freeze_except(TRAIN.sgd(jnp.array(0)), mask))
  frozen = trees.invert(mask)
  assert_same_bits(trees.select(tree, frozen), trees.select(PARAMS, frozen))
  for one, other in zip(
    jax.tree.leaves(trees.select(tree, mask)),
    jax.tree.leaves(trees.select(PARAMS, mask)),
    strict=True,
  ):
    assert (one != other).any()


def test_frozen_leaves_have_no_momentum():
  body = part_mask(TASK, 'body')
  state = optimisers.freeze_except(optax.sgd(0.1, 0.9), body).init(PARAMS)
  size = trees.num_bytes(trees.select(PARAMS, body))
  floats = [
    leaf
    for leaf in jax.tree.leaves(state)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  assert trees.num_bytes(floats) == size


def test_optax_masked_moves_frozen_leaves():
  """optax.masked applies the raw gradient to a frozen leaf."""
  body = part_mask(TASK, 'body')
  tree = fit_part(optax.masked(optax.sgd(0.1), body))
  assert (tree['head']['kernel'] != PARAMS['head']['kernel']).all()


def test_steps_left_out_change_neither_parameters_nor_momentum():
  """g = 1, beta = 1/2: m = 1 and 1 + 1/2, in every other step."""
  tx = optimisers.at_steps(optax.sgd(1.0, 0.5), lambda step: step % 2 == 1)
  state, moves = tx.init(jnp.zeros(())), []
  for _ in range(4):
    update, state = tx.update(jnp.ones(()), state)
    moves.append(float(update))
  assert moves == [0.0, -1.0, 0.0, -1.5]


def test_the_decay_begins_with_the_first_round():
  schedule = optimisers.step_schedule(0.8, 4, drops=(), decay=0.5)
  assert [float(schedule(r)) for r in (0, 1, 2)] == pytest.approx(
    [0.4, 0.2, 0.1]
  )
