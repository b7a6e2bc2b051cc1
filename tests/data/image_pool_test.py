"""A pool of rows is read as the images themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, build, make_data, play

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.client_data import ImagePool, pool_of

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), np.uint8)


def test_rows_of_accelerators_look_like_images():
  assert isinstance(pool_of(IMAGES), jax.Array)
  with compiling_for('gpu'):
    pool = pool_of(IMAGES)
  assert pool_of(pool).rows.shape == (6, 64)
  assert (pool.shape, pool.dtype, pool.ndim) == ((6, 8, 8, 1), np.uint8, 4)
  assert len(pool) == 6
  index = jnp.array([[4, 1], [0, 0]])
  np.testing.assert_array_equal(pool[index], IMAGES[index])
  np.testing.assert_array_equal(jax.jit(lambda p: p[2])(pool), IMAGES[2])
  np.testing.assert_array_equal(pool[1:3], IMAGES[1:3])


@pytest.mark.usefixtures('quick_compiler')
def test_a_round_has_the_same_bits():
  data = make_data()
  with compiling_for('tpu'):
    flat = data._replace(x=pool_of(np.asarray(data.x)))
  assert isinstance(flat.x, ImagePool)
  stages = build('fedavg')
  results = [play(stages, one, rounds=1)[0].params for one in (data, flat)]
  assert_same_bits(*results)
