"""The local training loop: it is the loop that one would write."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  FINETUNE,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  client_of,
  make_data,
  make_task,
)

from fedjax_pfl.client import local_training, optimisers
from fedjax_pfl.core import trees
from fedjax_pfl.core.parts import part_mask
from fedjax_pfl.core.types import Batch

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()
PARAMS = TASK.init(KEY(7))


# ---- the fit ---------------------------------------------------------------


def by_python(data, epochs, tx):
  """Fit in stored order on the client's own examples: no padding at all."""
  rows = data.index[: int(data.count)]
  tree, state, losses = PARAMS, tx.init(PARAMS), []
  step = jax.jit(jax.value_and_grad(TASK.loss))
  for _ in range(epochs):
    for batch in np.split(rows, range(BATCH, len(rows), BATCH)):
      x = TASK.normalise(data.x[batch], None)
      batch = Batch(x, data.y[batch], jnp.ones(len(x)))
      value, grads = step(tree, batch, KEY(0))
      updates, state = tx.update(grads, state, tree)
      tree = optax.apply_updates(tree, updates)
      losses.append(value)
  return tree, losses


@pytest.fixture
def quiet_task(monkeypatch):
  monkeypatch.setitem(globals(), 'TASK', make_task(noise=0))


@pytest.mark.usefixtures('quiet_task')
def test_fit_is_the_loop_one_would_write():
  """Clients with two batches and one example more, and with just one."""
  tx = TRAIN.sgd(jnp.array(0))
  batching = local_training.Batching(BATCH, 2, TASK.augment, shuffle=False)
  fit = jax.jit(
    lambda data: local_training.fit(
      TASK.loss, PARAMS, data, KEY(0), tx=tx, batching=batching
    )
  )
  for i in (4, 1):
    tree, info = fit(client_of(DATA, i))
    want, losses = by_python(client_of(DATA, i), 2, tx)
    assert_close(tree, want)
    assert info.num_steps == len(losses)
    np.testing.assert_allclose(info.losses[: len(losses)], losses, rtol=1e-5)
    assert not info.losses[len(losses) :].any()
    mean = float(info.metrics()['loss'])
    np.testing.assert_allclose(mean, np.mean(losses), rtol=1e-5)


@pytest.mark.usefixtures('float64')
def test_stops_are_the_fits_that_end_there():
  data, tx = client_of(DATA, 4), optax.sgd(0.1, 0.9)

  def fits(stops):
    batching = local_training.Batching(BATCH, 5, TASK.augment)
    return jax.jit(
      lambda: local_training.fit_with_snapshots(
        TASK.loss, PARAMS, data, KEY(0), tx=tx, batching=batching, stops=stops
      )
    )()

  kept, info = fits((1, 5, 2))
  for place, stop in enumerate((1, 5)):
    (alone,), _ = fits((stop,))
    assert_close(kept[place], alone)
  assert info.num_steps == 5 * 3
  assert not np.allclose(kept[0]['head']['bias'], kept[2]['head']['bias'])


# ---- trainable -------------------------------------------------------------


@pytest.mark.usefixtures('quiet_task')
def test_a_fit_goes_on_with_its_state():
  tx, data = optax.sgd(0.1, 0.9), client_of(DATA, 4)
  halves = local_training.Batching(BATCH, 1, TASK.augment, shuffle=False)

  @partial(jax.jit, static_argnums=2)
  def fit(params, opt_state=None, batching=halves):
    return local_training.fit(
      TASK.loss,
      params,
      data,
      KEY(0),
      tx=tx,
      batching=batching,
      opt_state=opt_state,
    )

  whole, _ = fit(PARAMS, None, halves._replace(epochs=2))
  half, info = fit(PARAMS)
  assert_close(fit(half, info.opt_state)[0], whole)
  anew = fit(half)[0]['body']['kernel']
  assert jnp.abs(anew - whole['body']['kernel']).max() > 1e-3


def test_what_a_loss_reports_is_recorded_beside_it():
  def loss(tree, batch, key):
    return tree**2 + 1, {'square': tree**2}

  batching = local_training.Batching(2, 1, TASK.normalise, shuffle=False)
  start, tx = jnp.ones(()), optax.sgd(0.25)
  tree, info = local_training.fit(
    loss, start, client_of(DATA, 3), KEY(0), tx=tx, batching=batching
  )
  assert tree == 0.25  # halved twice
  np.testing.assert_array_equal(info.losses, [2, 1.25, 0, 0, 0])
  np.testing.assert_array_equal(info.metrics()['square'], [1, 0.25, 0, 0, 0])


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
def test_trainable_moves_its_part_alone(part):
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


def test_the_trap_that_trainable_avoids():
  """optax.masked hands the raw gradient of a frozen leaf through."""
  body = part_mask(TASK, 'body')
  tree = fit_part(optax.masked(optax.sgd(0.1), body))
  assert (tree['head']['kernel'] != PARAMS['head']['kernel']).all()


def test_settings_reach_the_batches():
  batching = TRAIN._replace(shuffle=False).batching(TASK)
  assert batching == local_training.Batching(
    BATCH, 2, TASK.augment, shuffle=False
  )
  assert TRAIN.batching(TASK).shuffle and FINETUNE.shuffle


def test_steps_left_out_move_nothing_and_forget_nothing():
  """g = 1, beta = 1/2: m = 1 and 1 + 1/2, in every other step."""
  tx = optimisers.at_steps(optax.sgd(1.0, 0.5), lambda step: step % 2 == 1)
  state, moves = tx.init(jnp.zeros(())), []
  for _ in range(4):
    update, state = tx.update(jnp.ones(()), state)
    moves.append(float(update))
  assert moves == [0.0, -1.0, 0.0, -1.5]
