"""Local training is the plain loop over epochs and batches."""

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
  client_of,
  make_data,
  make_task,
)

from fedjax_pfl.client import local_training
from fedjax_pfl.core.types import Batch

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()
PARAMS = TASK.init(KEY(7))


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
def test_fit_is_a_plain_loop_over_batches():
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
def test_a_snapshot_is_the_fit_that_ends_there():
  data, tx = client_of(DATA, 4), optax.sgd(0.1, 0.9)

  def fits(stops):
    batching = local_training.Batching(BATCH, 5, TASK.augment)
    return jax.jit(
      lambda: local_training.fit_with_snapshots(
        TASK.loss, PARAMS, data, KEY(0), tx=tx, batching=batching, stops=stops
      )
    )()

  snapshots, info = fits((1, 5, 2))
  for place, stop in enumerate((1, 5)):
    (alone,), _ = fits((stop,))
    assert_close(snapshots[place], alone)
  assert info.num_steps == 5 * 3
  first, last = (snapshots[place]['head']['bias'] for place in (0, 2))
  assert not np.allclose(first, last)


@pytest.mark.usefixtures('quiet_task')
def test_a_fit_continues_with_the_state_of_its_optimiser():
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

  both, _ = fit(PARAMS, None, halves._replace(epochs=2))
  half, info = fit(PARAMS)
  assert_close(fit(half, info.opt_state)[0], both)
  anew = fit(half)[0]['body']['kernel']
  assert jnp.abs(anew - both['body']['kernel']).max() > 1e-3


def test_metrics_of_a_loss_are_recorded():
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


def test_settings_reach_the_batches():
  batching = TRAIN._replace(shuffle=False).batching(TASK)
  assert batching == local_training.Batching(
    BATCH, 2, TASK.augment, shuffle=False
  )
  assert TRAIN.batching(TASK).shuffle and FINETUNE.shuffle
