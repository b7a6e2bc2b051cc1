"""A pool of rows is read as the images themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  TEST_COUNTS,
  assert_same_bits,
  build,
  evaluate,
  make_data,
  play,
)

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.image_pool import ImagePool, pool_of

pytestmark = pytest.mark.usefixtures('quick_compiler')
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), np.uint8)


def pool():
  with compiling_for('gpu'):
    return pool_of(IMAGES)


def test_only_accelerators_have_rows():
  assert isinstance(pool_of(IMAGES), jax.Array)
  assert isinstance(pool(), ImagePool)
  assert pool_of(pool()).rows.shape == (6, 64)


def test_it_looks_like_images():
  rows = pool()
  assert (rows.shape, rows.dtype, rows.ndim) == ((6, 8, 8, 1), np.uint8, 4)
  assert len(rows) == 6
  index = jnp.array([[4, 1], [0, 0]])
  np.testing.assert_array_equal(rows[index], IMAGES[index])
  np.testing.assert_array_equal(jax.jit(lambda p: p[2])(rows), IMAGES[2])
  np.testing.assert_array_equal(rows[1:3], IMAGES[1:3])


def test_a_round_and_an_evaluation_have_the_same_bits():
  data, tests = make_data(), make_data(TEST_COUNTS, seed=1)
  with compiling_for('tpu'):
    flat, flat_tests = (
      one._replace(x=pool_of(np.asarray(one.x))) for one in (data, tests)
    )
  assert isinstance(flat.x, ImagePool)
  stages = build('fedavg')
  results = []
  for train, test in ((data, tests), (flat, flat_tests)):
    server, clients, _ = play(stages, train, rounds=1)
    scores, _ = evaluate(stages, server, clients, train, test)
    results.append((server.params, scores))
  assert_same_bits(*results)
