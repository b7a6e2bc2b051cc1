"""Properties of the batches of an epoch, and of cohorts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.batching import Batching, batches_of_epoch, steps_of_epoch
from fedjax_pfl.federated.sampling import cohort_size, sample_cohort

pytestmark = pytest.mark.usefixtures('quick_compiler')
KEY = jax.random.key
WIDTH, POOL, CLASSES = 9, 40, 4
COUNTS = st.integers(0, WIDTH)
# Sizes, and whether they are shuffled: each pair compiles.
ORDERS = st.sampled_from([(1, True), (4, True), (4, False), (WIDTH + 2, False)])
SEEDS = st.integers(0, 2**31 - 1)


def client(count, seed):
  """Return a client of rows of the pool; the image is the row's number."""
  rng = np.random.default_rng(seed)
  return ClientData(
    np.arange(POOL, dtype=np.int32),
    rng.integers(0, CLASSES, POOL, np.int32),
    rng.permutation(POOL)[:WIDTH].astype(np.int32),
    np.int32(count),
  )


@functools.partial(jax.jit, static_argnums=(2, 3))
def all_batches(data, rng, size, shuffle):
  batching = Batching(size, 1, lambda x, key: x.astype(float), shuffle)
  batch_at = batches_of_epoch(data, rng, batching)
  batches = jax.vmap(lambda place: batch_at(place, KEY(0))[0])
  return batches(jnp.arange(-(-WIDTH // size))), steps_of_epoch(data, batching)


def epoch(data, seed, size, shuffle):
  """Return images, labels and mask of the batches of one epoch, as numpy."""
  batches, steps = all_batches(data, KEY(seed), size, shuffle)
  return [np.asarray(rows)[: int(steps)] for rows in batches]


@given(COUNTS, ORDERS, SEEDS)
def test_an_epoch_has_every_example_once(count, order, seed):
  """And does not depend on the padding."""
  size, shuffle = order
  data = client(count, seed)
  x, y, mask = epoch(data, seed, size, shuffle)
  assert len(x) == -(-count // size)
  real = mask > 0
  assert (real.sum(1)[:-1] == size).all()  # the last alone may be short
  own, shown = data.index[:count], x[real].astype(int)
  np.testing.assert_array_equal(np.sort(shown), np.sort(own))
  np.testing.assert_array_equal(y[real], data.y[shown])
  if not shuffle:
    np.testing.assert_array_equal(shown, own)
  tail = np.arange(WIDTH) >= count
  other = data._replace(index=np.where(tail, POOL - 1, data.index))
  again, _, same_mask = epoch(other, seed, size, shuffle)
  np.testing.assert_array_equal(same_mask, mask)
  np.testing.assert_array_equal(again[real], x[real])


@given(
  st.sampled_from([(12, 5), (9, 9)]),
  SEEDS,
  st.integers(1, 10_000),
  st.floats(0, 1, exclude_min=True),
)
def test_a_cohort_is_distinct_sorted_and_of_its_size(
  sizes, seed, num_clients, fraction
):
  cohort = np.asarray(sample_cohort(KEY(seed), *sizes))
  assert cohort.shape == sizes[1:]
  assert (np.diff(cohort) > 0).all()
  assert cohort[0] >= 0 and cohort[-1] < sizes[0]
  size = cohort_size(num_clients, fraction)
  assert 1 <= size <= num_clients
  assert size <= max(num_clients * fraction, 1) < size + 1
