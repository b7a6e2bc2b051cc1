"""The batches of a fit: which examples, in which order, with which keys.

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
from helpers import KEY, assert_same_bits

from fedjax_pfl.client import local_training
from fedjax_pfl.core.types import ClientData

pytestmark = pytest.mark.usefixtures('quick_compiler')


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

  batching = local_training.Batching(size, epochs, as_is, shuffle, steps)
  tx = optax.sgd(0.1)
  _, info = local_training.fit(
    loss, jnp.zeros(()), data, rng, tx=tx, batching=batching
  )
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


def test_every_epoch_is_reshuffled():
  sums = report(examples, client(9))
  assert len({tuple(epoch) for epoch in sums.tolist()}) == 3
  other = report(examples, client(9), seed=1)
  assert (sums != other).any()


def test_shuffling_is_uniform():
  """Which of 4 comes first, in 400 epochs: 100 each, deviation 8.7."""
  sums = report(examples, client(4), size=1, epochs=400)
  first = np.bincount([decode(total).pop() for total in sums[:, 0]])
  assert np.abs(first - 100).max() < 4 * 8.7


def test_stored_order_without_shuffling():
  sums = report(examples, client(5), shuffle=False)
  np.testing.assert_array_equal(sums, [[1 + 2, 4 + 8, 16]] * 3)


def one_more(batches):
  return batches + 1


def test_batches_are_repeated_when_they_run_out():
  got = report(examples, client(5), shuffle=False, steps=one_more)
  np.testing.assert_array_equal(got, [[3, 12, 16, 3]] * 3)
  for steps in (None, one_more):
    assert report(examples, client(0), steps=steps).size == 0


def test_a_step_may_have_several_batches():
  """Of (1, 2), (4, 8), (16) and again (1, 2): two and two."""

  def loss(tree, batch, key):
    assert batch.x.shape == (2, 2, 1) and batch.mask.shape == (2, 2)
    sums = (batch.mask * batch.x[:, :, 0]).sum(1)
    return 0 * tree + sums[0] + 100 * sums[1]

  batching = local_training.Batching(
    2, 1, as_is, False, lambda batches: 2, batches_per_step=2
  )
  tx, data = optax.sgd(0.1), client(5)
  _, info = local_training.fit(
    loss, jnp.zeros(()), data, KEY(0), tx=tx, batching=batching
  )
  assert info.losses.tolist() == [3 + 100 * 12, 16 + 100 * 3]


def test_batches_of_one_step_have_keys_of_their_own():
  def loss(tree, batch, key):
    return 0 * tree + batch.x[0, 0] - batch.x[1, 0] + 0 * batch.x.sum()

  def random(x, key):
    return jax.random.uniform(key, (len(x),))

  batching = local_training.Batching(
    1, 1, random, True, lambda batches: 3, batches_per_step=2
  )
  _, info = local_training.fit(
    loss,
    jnp.zeros(()),
    client(1),
    KEY(0),
    tx=optax.sgd(0.1),
    batching=batching,
  )
  assert len(set(info.losses.tolist())) == 3 and info.losses.all()


def test_repeated_batches_are_reshuffled():
  def twice(batches):
    return 2 * batches

  orders = report(examples, client(8), size=1, epochs=1, steps=twice)[0]
  assert sorted(orders[:8]) == sorted(orders[8:])
  assert list(orders[:8]) != list(orders[8:])
  usual = report(examples, client(8), size=1, epochs=1)[0]
  np.testing.assert_array_equal(orders[:8], usual)


def test_order_does_not_depend_on_the_padding():
  wide = report(examples, client(5, width=33))
  assert_same_bits(wide, report(examples, client(5)))


def test_a_batch_may_have_several_steps():
  """Consecutive, with the same inputs; the loss has a new key in each."""

  def blurred(x, key):
    return x + 0.1 * jax.random.uniform(key, x.shape)

  def loss(tree, batch, key):
    drawn = {'drawn': jax.random.uniform(key)}
    return 0 * tree + (batch.mask * batch.x[:, 0]).sum(), drawn

  batching = local_training.Batching(2, 2, blurred, False, steps_per_batch=3)
  _, info = local_training.fit(
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


# ---- keys ------------------------------------------------------------------


def test_key_of_a_step_depends_on_epoch_and_step_only():
  """Not on how many steps an epoch has: 3 of them here, 5 there."""
  few, many = report(draw, client(5)), report(draw, client(9))
  assert_same_bits(few, many[:, :3])
  assert len(set(many.ravel().tolist())) == many.size


def test_key_of_a_fit_changes_all_of_its_steps():
  one, other = report(draw, client(5)), report(draw, client(5), seed=1)
  assert (one != other).all()


def test_transform_and_loss_have_keys_of_their_own():
  def tag(x, key):
    return jnp.full_like(x, jax.random.uniform(key))

  def loss(tree, batch, key):
    return 0 * tree + batch.x[0, 0] - jax.random.uniform(key)

  _, info = local_training.fit(
    loss,
    jnp.zeros(()),
    client(5),
    KEY(0),
    tx=optax.sgd(0.1),
    batching=local_training.Batching(2, 2, tag),
  )
  differences = info.losses[: info.num_steps].tolist()
  assert len(set(differences)) == 2 * 3 and 0.0 not in differences
