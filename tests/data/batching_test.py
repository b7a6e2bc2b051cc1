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
from helpers import KEY

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


def num_different(values):
  return len(set(np.ravel(values).tolist()))


def test_every_epoch_and_every_seed_has_its_order():
  sums = [report(examples, client(9), seed=seed) for seed in (0, 1)]
  assert len({tuple(epoch) for epoch in sums[0].tolist()}) == 3
  assert (sums[0] != sums[1]).any()


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


def test_a_batch_with_several_steps_has_the_same_inputs_and_new_keys():
  options = {'transform': noise, 'steps_per_batch': 3}
  steps = report(examples, client(5), **options).reshape(9, 3)
  assert (steps == steps[:, :1]).all() and num_different(steps[:, 0]) == 9
  assert num_different(report(draw, client(5), **options)) == 27
