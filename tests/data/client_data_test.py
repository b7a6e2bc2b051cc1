import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, build, make_data, play, refused

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.client_data import (
  ImagePool,
  describe,
  from_arrays,
  label_counts_of_clients,
  label_shares,
  pool_of,
  stack_clients,
)
from fedjax_pfl.data.images import Images, aligned
from fedjax_pfl.training.program import as_one_client


def pool(size=10):
  x = np.random.default_rng(0).integers(0, 256, (size, 2, 2, 1), dtype=np.uint8)
  return Images(x, np.arange(size, dtype=np.int32))


RAGGED = [np.array([4, 2, 7]), np.array([], np.int64), np.array([9])]


def test_the_examples_of_all_clients_are_copied_once():
  """A CPU's device has the joined array; what a user may write is copied."""
  x = pool().x
  assert from_arrays([x, x], [np.arange(10)] * 2).x.shape == (20, 2, 2, 1)
  mine = aligned(x.shape, x.dtype)
  mine[:], is_mine = x, []
  for writeable in (True, False):
    mine.flags.writeable = writeable
    where = pool_of(mine).unsafe_buffer_pointer()
    is_mine.append(where == mine.ctypes.data)
  assert is_mine == [False, True]


def test_rows_are_padded_behind():
  data = stack_clients(pool(), RAGGED)
  assert data.index.tolist() == [[4, 2, 7], [0, 0, 0], [9, 0, 0]]
  assert data.count.tolist() == [3, 0, 1]
  dtypes = [leaf.dtype.name for leaf in jax.tree.leaves(data)]
  assert dtypes == ['uint8', 'int32', 'int32', 'int32']
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(data))
  np.testing.assert_array_equal(data.x, pool().x)
  assert describe(data) == (
    '3 clients, 4 examples, 0 to 3 each, median 1; padding 55.6 %'
  )
  data = stack_clients(pool(), [np.arange(5), np.arange(5, 10)])
  assert describe(data) == '2 clients, 10 examples, 5 each; padding 0.0 %'
  # Clients without any example have one padded row.
  data = stack_clients(pool(), [np.array([], np.int64)] * 2)
  assert data.index.shape == (2, 1)


def test_from_arrays_gives_every_client_its_own():
  rng = np.random.default_rng(0)
  xs = [rng.standard_normal((n, 2, 2, 3), np.float32) for n in (3, 0, 5)]
  ys = [rng.integers(0, 9, len(x)) for x in xs]
  ys[1] = []  # floats in numpy
  data = from_arrays(xs, ys)
  for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
    rows = data.index[k, : data.count[k]]
    np.testing.assert_array_equal(data.x[rows], x)
    np.testing.assert_array_equal(data.y[rows], y)
  assert data.x.dtype == np.float32
  assert data.y.dtype == np.int32
  ys[0] = ys[0].astype(np.int64) + 2**31
  assert 'labels from' in refused(from_arrays, xs, ys)


def test_counts_of_labels_leave_the_padding_out():
  data = stack_clients(pool(), RAGGED)
  counts = label_counts_of_clients(data._replace(y=np.arange(10) % 3), 3)
  assert counts.tolist() == [[0, 2, 1], [0, 0, 0], [1, 0, 0]]
  shares = label_shares(np.array([[3, 1], [0, 0]]))
  assert shares.tolist() == [[0.75, 0.25], [0, 0]]
  assert shares.dtype == np.float64


# ---- rows of accelerators

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), np.uint8)
Y = np.zeros(6, int)


def test_rows_of_accelerators_look_like_images():
  assert isinstance(pool_of(IMAGES), jax.Array)
  with compiling_for('gpu'):
    pool = pool_of(IMAGES)
    assert pool_of(IMAGES[:0]).shape == (0, 8, 8, 1)
    assert isinstance(as_one_client(Images(IMAGES, Y)).x, ImagePool)
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
