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


@partial(jax.jit, static_argnums=(0, 3))
def fit(loss, data, rng, batching):
  return local_training.fit(
    lambda tree, batch, key: 0 * tree + loss(batch, key),
    jnp.zeros(()),
    data,
    rng,
    tx=optax.sgd(0.1),
    batching=batching,
  )[1]


def report(loss, data, seed=0, size=2, epochs=3, shuffle=True, **options):
  """Return the values [epochs, steps] of loss(batch, key) in a fit."""
  options = {'transform': as_is, **options}
  batching = local_training.Batching(size, epochs, shuffle=shuffle, **options)
  info = fit(loss, data, KEY(seed), batching)
  used = int(info.num_steps)
  assert not info.losses[used:].any()
  return np.asarray(info.losses[:used]).reshape(epochs, -1)


def examples(batch, key):
  return (batch.mask * batch.x[:, 0]).sum()


def draw(batch, key):
  return jax.random.uniform(key)


def noise(x, key):
  return jax.random.uniform(key, x.shape)


def one_more(batches):
  return batches + 1


def twice(batches):
  return 2 * batches


def num_different(values):
  return len(set(np.ravel(values).tolist()))


def test_every_epoch_and_every_seed_has_its_order():
  sums = [report(examples, client(9), seed=seed) for seed in (0, 1)]
  assert len({tuple(epoch) for epoch in sums[0].tolist()}) == 3
  assert (sums[0] != sums[1]).any()


def test_shuffling_is_uniform():
  """Which of 4 comes first, in 400 epochs: 100 each, deviation 8.7."""
  sums = report(examples, client(4), size=1, epochs=400)
  first = np.bincount(np.log2(sums[:, 0]).astype(int))
  assert np.abs(first - 100).max() < 4 * 8.7


@pytest.mark.parametrize(
  ('options', 'sums'),
  [
    ({}, [1 + 2, 4 + 8, 16]),
    ({'steps': one_more}, [3, 12, 16, 3]),  # they are repeated
    ({'steps_per_batch': 2}, [3, 3, 12, 12, 16, 16]),
  ],
)
def test_stored_order_without_shuffling(options, sums):
  got = report(examples, client(5), shuffle=False, **options)
  np.testing.assert_array_equal(got, [sums] * 3)
  assert report(examples, client(0), **options).size == 0


def test_a_step_may_have_several_batches():
  """Of (1, 2), (4, 8), (16) and again (1, 2): two and two."""

  def pair(batch, key):
    assert batch.x.shape == (2, 2, 1) and batch.mask.shape == (2, 2)
    sums = (batch.mask * batch.x[:, :, 0]).sum(1)
    return sums[0] + 100 * sums[1]

  got = report(
    pair,
    client(5),
    epochs=1,
    shuffle=False,
    steps=lambda batches: 2,
    batches_per_step=2,
  )
  assert got.tolist() == [[3 + 100 * 12, 16 + 100 * 3]]


def test_batches_of_one_step_have_keys_of_their_own():
  got = report(
    lambda batch, key: batch.x[0, 0, 0] - batch.x[1, 0, 0],
    client(1),
    size=1,
    epochs=1,
    transform=noise,
    steps=lambda batches: 3,
    batches_per_step=2,
  )
  assert num_different(got) == 3 and got.all()


def test_repeated_batches_are_reshuffled():
  orders = report(examples, client(8), size=1, epochs=1, steps=twice)[0]
  assert sorted(orders[:8]) == sorted(orders[8:])
  assert list(orders[:8]) != list(orders[8:])
  usual = report(examples, client(8), size=1, epochs=1)[0]
  np.testing.assert_array_equal(orders[:8], usual)


def test_order_does_not_depend_on_the_padding():
  wide = report(examples, client(5, width=33))
  assert_same_bits(wide, report(examples, client(5)))


def test_a_batch_with_several_steps_has_the_same_inputs_and_new_keys():
  options = {'transform': noise, 'steps_per_batch': 3}
  steps = report(examples, client(5), **options).reshape(9, 3)
  assert (steps == steps[:, :1]).all() and num_different(steps[:, 0]) == 9
  assert num_different(report(draw, client(5), **options)) == 27


def test_key_of_a_step_depends_on_epoch_step_and_fit_only():
  """Not on how many steps an epoch has: 3 of them here, 5 there."""
  few, many = report(draw, client(5)), report(draw, client(9))
  assert_same_bits(few, many[:, :3])
  assert num_different(many) == many.size
  assert (few != report(draw, client(5), seed=1)).all()


def test_transform_and_loss_have_keys_of_their_own():
  differences = report(
    lambda batch, key: batch.x[0, 0] - jax.random.uniform(key, (2, 1))[0, 0],
    client(5),
    transform=noise,
  )
  assert num_different(differences) == 9 and differences.all()
