"""The local training loop: which examples, in which order, with which keys.

Many losses here only report: they return what the loop hands them, and it is
read off `FitInfo.losses`. An example is a power of two, so that the sum of a
batch tells which examples are in it.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  COUNTS,
  KEY,
  PERSONAL,
  TRAIN,
  assert_close,
  assert_same_bits,
  client_of,
  make_data,
  make_task,
)

from fedjax_pfl import local, trees
from fedjax_pfl.batches import class_counts
from fedjax_pfl.personalize import part_mask
from fedjax_pfl.types import Batch, ClientData

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()
PARAMS = TASK.init(KEY(7))


def as_is(x, key):
  return x


def client(count, width=10):
  """Return a client whose examples are 1, 2, 4, ...; its padding is 1024."""
  x = 2.0 ** np.arange(11)[:, None]
  index = np.full(width, 10)
  index[:count] = np.arange(count)
  y = jnp.zeros(11, jnp.int32)
  return ClientData(jnp.asarray(x), y, jnp.asarray(index), jnp.array(count))


@partial(jax.jit, static_argnums=(0, 3, 4, 5, 6))
def reporting_fit(value_fn, data, rng, size, epochs, shuffle, steps):
  def loss(tree, batch, key):
    return 0 * tree + value_fn(batch, key)

  batching = local.Batching(size, epochs, as_is, shuffle, steps)
  tx = optax.sgd(0.1)
  _, info = local.fit(loss, jnp.zeros(()), data, rng, tx=tx, batching=batching)
  return info


def report(value_fn, data, seed=0, size=2, epochs=3, shuffle=True, steps=None):
  """Return the values [epochs, steps] of value_fn(batch, key) in a fit."""
  rng = KEY(seed)
  info = reporting_fit(value_fn, data, rng, size, epochs, shuffle, steps)
  used = int(info.num_steps)
  assert not info.losses[used:].any()
  return np.asarray(info.losses[:used]).reshape(epochs, -1)


def examples(batch, key):
  return (batch.mask * batch.x[:, 0]).sum()


def decode(total):
  """Return the examples of a batch: the bits of their sum."""
  return {i for i in range(11) if int(total) >> i & 1}


def draw(batch, key):
  return jax.random.uniform(key)


# ---- batches ---------------------------------------------------------------


@pytest.mark.parametrize('count', [1, 2, 5, 6])
def test_every_epoch_shows_every_example_once(count):
  sums = report(examples, client(count), size=2)
  assert sums.shape == (3, -(-count // 2))
  for epoch in sums:
    batches = [decode(total) for total in epoch]
    assert set().union(*batches) == set(range(count))
    assert sum(map(len, batches)) == count
    assert all(len(batch) == 2 for batch in batches[:-1])


def test_epochs_are_shuffled_anew():
  sums = report(examples, client(9))
  assert len({tuple(epoch) for epoch in sums.tolist()}) == 3
  other = report(examples, client(9), seed=1)
  assert (sums != other).any()


def test_shuffling_favours_no_place():
  """Which of 4 comes first, in 400 epochs: 100 each, deviation 8.7."""
  sums = report(examples, client(4), size=1, epochs=400)
  first = np.bincount([decode(total).pop() for total in sums[:, 0]])
  assert np.abs(first - 100).max() < 4 * 8.7


def test_stored_order_without_shuffling():
  sums = report(examples, client(5), shuffle=False)
  np.testing.assert_array_equal(sums, [[1 + 2, 4 + 8, 16]] * 3)


def one_more(batches):
  return batches + 1


def test_batches_begin_anew_where_they_run_out():
  got = report(examples, client(5), shuffle=False, steps=one_more)
  np.testing.assert_array_equal(got, [[3, 12, 16, 3]] * 3)
  assert report(examples, client(0), steps=one_more).size == 0


def test_a_step_may_have_several_batches():
  """Of (1, 2), (4, 8), (16) and again (1, 2): two and two."""

  def loss(tree, batch, key):
    assert batch.x.shape == (2, 2, 1) and batch.mask.shape == (2, 2)
    sums = (batch.mask * batch.x[:, :, 0]).sum(1)
    return 0 * tree + sums[0] + 100 * sums[1]

  batching = local.Batching(2, 1, as_is, False, lambda batches: 2, together=2)
  tx, data = optax.sgd(0.1), client(5)
  _, info = local.fit(
    loss, jnp.zeros(()), data, KEY(0), tx=tx, batching=batching
  )
  assert info.losses.tolist() == [3 + 100 * 12, 16 + 100 * 3]


def test_batches_of_one_step_have_keys_of_their_own():
  def loss(tree, batch, key):
    return 0 * tree + batch.x[0, 0] - batch.x[1, 0] + 0 * batch.x.sum()

  def random(x, key):
    return jax.random.uniform(key, (len(x),))

  batching = local.Batching(1, 1, random, True, lambda batches: 3, together=2)
  _, info = local.fit(
    loss,
    jnp.zeros(()),
    client(1),
    KEY(0),
    tx=optax.sgd(0.1),
    batching=batching,
  )
  assert len(set(info.losses.tolist())) == 3 and info.losses.all()


def test_batches_that_begin_anew_are_shuffled_anew():
  def twice(batches):
    return 2 * batches

  orders = report(examples, client(8), size=1, epochs=1, steps=twice)[0]
  assert sorted(orders[:8]) == sorted(orders[8:])
  assert list(orders[:8]) != list(orders[8:])
  usual = report(examples, client(8), size=1, epochs=1)[0]
  np.testing.assert_array_equal(orders[:8], usual)


def test_mask_is_one_for_examples_alone():
  size = report(lambda batch, key: batch.mask.sum(), client(5))
  np.testing.assert_array_equal(size, [[2, 2, 1]] * 3)


def test_order_does_not_depend_on_the_padding():
  wide = report(examples, client(5, width=33))
  assert_same_bits(wide, report(examples, client(5)))


def test_client_without_examples_takes_no_step():
  data = client_of(DATA, COUNTS.index(0))
  tree, info = local.fit(
    TASK.loss,
    PARAMS,
    data,
    KEY(0),
    tx=optax.sgd(0.1),
    batching=TRAIN.batching(TASK),
  )
  assert_same_bits(tree, PARAMS)
  assert info.num_steps == 0
  assert info.metrics()['loss'] == 0


def test_a_batch_may_have_several_steps():
  """In a row, of the same inputs; all else that is random is drawn anew."""

  def blurred(x, key):
    return x + 0.1 * jax.random.uniform(key, x.shape)

  def loss(tree, batch, key):
    drawn = {'drawn': jax.random.uniform(key)}
    return 0 * tree + (batch.mask * batch.x[:, 0]).sum(), drawn

  batching = local.Batching(2, 2, blurred, False, repeats=3)
  _, info = local.fit(
    loss,
    jnp.zeros(()),
    client(5),
    KEY(0),
    tx=optax.sgd(0.1),
    batching=batching,
  )
  assert info.num_steps == 2 * 3 * 3
  steps = info.losses[:18].reshape(6, 3)
  assert (steps == steps[:, :1]).all() and len(set(steps[:, 0].tolist())) == 6
  np.testing.assert_allclose(steps[:3, 0], [3.1, 12.1, 16.1], atol=0.11)
  assert len(set(info.reports['drawn'][:18].tolist())) == 18


def test_class_counts_leave_the_padding_out():
  data = DATA._replace(y=DATA.y.at[-1].set(0))
  for i, count in enumerate(data.count.tolist()):
    one = client_of(data, i)
    counts = class_counts(one, 4)
    assert counts.shape == (4,) and counts.sum() == count
    own = np.asarray(one.y[one.index[:count]])
    np.testing.assert_array_equal(counts, np.bincount(own, minlength=4))


# ---- keys ------------------------------------------------------------------


def test_key_of_a_step_depends_on_epoch_and_number_alone():
  """Not on how many steps an epoch has: 3 of them here, 5 there."""
  few, many = report(draw, client(5)), report(draw, client(9))
  assert_same_bits(few, many[:, :3])
  assert len(set(many.ravel().tolist())) == many.size


def test_key_of_a_fit_moves_all_of_its_steps():
  one, other = report(draw, client(5)), report(draw, client(5), seed=1)
  assert (one != other).all()


def test_transform_and_loss_have_keys_of_their_own():
  def tag(x, key):
    return jnp.full_like(x, jax.random.uniform(key))

  def loss(tree, batch, key):
    return 0 * tree + batch.x[0, 0] - jax.random.uniform(key)

  _, info = local.fit(
    loss,
    jnp.zeros(()),
    client(5),
    KEY(0),
    tx=optax.sgd(0.1),
    batching=local.Batching(2, 2, tag),
  )
  differences = info.losses[: info.num_steps].tolist()
  assert len(set(differences)) == 2 * 3 and 0.0 not in differences


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
  batching = local.Batching(BATCH, 2, TASK.augment, shuffle=False)
  fit = jax.jit(
    lambda data: local.fit(
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
    batching = local.Batching(BATCH, 5, TASK.augment)
    return jax.jit(
      lambda: local.fit_stops(
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
  halves = local.Batching(BATCH, 1, TASK.augment, shuffle=False)

  @partial(jax.jit, static_argnums=2)
  def fit(params, opt_state=None, batching=halves):
    return local.fit(
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

  batching = local.Batching(2, 1, as_is, shuffle=False)
  start, tx = jnp.ones(()), optax.sgd(0.25)
  tree, info = local.fit(
    loss, start, client(4), KEY(0), tx=tx, batching=batching
  )
  assert tree == 0.25  # halved twice
  np.testing.assert_array_equal(info.losses, [2, 1.25, 0, 0, 0])
  np.testing.assert_array_equal(info.metrics()['square'], [1, 0.25, 0, 0, 0])


def fit_part(tx):
  tree, _ = local.fit(
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
  tree = fit_part(local.trainable(TRAIN.sgd(jnp.array(0)), mask))
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
  state = local.trainable(optax.sgd(0.1, 0.9), body).init(PARAMS)
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
  assert batching == local.Batching(BATCH, 2, TASK.augment, shuffle=False)
  assert TRAIN.batching(TASK).shuffle and PERSONAL.shuffle


def test_steps_left_out_move_nothing_and_forget_nothing():
  """g = 1, beta = 1/2: m = 1 and 1 + 1/2, in every other step."""
  tx = local.at_steps(optax.sgd(1.0, 0.5), lambda step: step % 2 == 1)
  state, moves = tx.init(jnp.zeros(())), []
  for _ in range(4):
    update, state = tx.update(jnp.ones(()), state)
    moves.append(float(update))
  assert moves == [0.0, -1.0, 0.0, -1.5]
