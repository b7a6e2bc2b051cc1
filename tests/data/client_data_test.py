import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import Images, describe, from_arrays, stack_clients
from fedjax_pfl.data.client_data import padding_share


def pool(size=10):
  x = np.random.default_rng(0).integers(0, 256, (size, 2, 2, 1), dtype=np.uint8)
  return Images(x, np.arange(size, dtype=np.int32))


RAGGED = [np.array([4, 2, 7]), np.array([], np.int64), np.array([9])]


def test_rows_are_padded_behind():
  data = stack_clients(pool(), RAGGED)
  assert data.index.tolist() == [[4, 2, 7], [0, 0, 0], [9, 0, 0]]
  assert data.count.tolist() == [3, 0, 1]
  dtypes = [leaf.dtype.name for leaf in data]
  assert dtypes == ['uint8', 'int32', 'int32', 'int32']
  assert all(isinstance(leaf, jax.Array) for leaf in data)
  np.testing.assert_array_equal(data.x, pool().x)


def test_clients_without_any_example_have_one_padded_row():
  data = stack_clients(pool(), [np.array([], np.int64)] * 2)
  assert data.index.shape == (2, 1)
  assert padding_share(data) == 1


def test_padding_share_and_description():
  data = stack_clients(pool(), RAGGED)
  assert padding_share(data) == pytest.approx(5 / 9)
  assert describe(data) == (
    '3 clients, 4 examples, 0 to 3 each, median 1; padding 55.6 %'
  )
  data = stack_clients(pool(), [np.arange(5), np.arange(5, 10)])
  assert padding_share(data) == 0
  assert describe(data) == '2 clients, 10 examples, 5 each; padding 0.0 %'


def test_from_arrays_gives_every_client_its_own():
  rng = np.random.default_rng(0)
  xs = [rng.standard_normal((n, 2, 2, 3), np.float32) for n in (3, 0, 5)]
  ys = [rng.integers(0, 9, len(x)) for x in xs]
  data = from_arrays(xs, ys)
  for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
    rows = data.index[k, : data.count[k]]
    np.testing.assert_array_equal(data.x[rows], x)
    np.testing.assert_array_equal(data.y[rows], y)
  assert data.x.dtype == np.float32
  assert data.y.dtype == np.int32


def test_from_arrays_keeps_doubles_under_x64():
  x = np.random.default_rng(0).standard_normal((4, 1, 1, 1))
  with jax.enable_x64(True):
    data = from_arrays([x], [np.zeros(4, int)])
    assert data.x.dtype == jnp.float64
    assert data.index.dtype == jnp.int32
    np.testing.assert_array_equal(data.x, x)


@pytest.mark.parametrize(
  ('indices', 'message'),
  [
    ([], 'got .no client'),
    ([np.array([0, 10])], 'rows from 0 to 10.*0 to 9'),
    ([np.array([-1])], 'rows from -1'),
  ],
)
def test_errors_of_indices(indices, message):
  with pytest.raises(BadInput, match=message):
    stack_clients(pool(), indices)


def image(size, side=2, dtype=np.uint8):
  return np.zeros((size, side, side, 1), dtype)


@pytest.mark.parametrize(
  ('xs', 'ys', 'message'),
  [
    ([], [], 'at least one client'),
    ([1.0], [1], 'a single number'),
    ([image(2)], [np.zeros(3, int)], r'\[2\] images and \[3\] labels'),
    ([image(2)], [np.zeros(2, int)] * 2, 'equally many'),
    ([image(2), image(2, 3)], [np.zeros(2, int)] * 2, 'one shape and dtype'),
    (
      [image(2), image(2, dtype=np.float32)],
      [np.zeros(2, int)] * 2,
      'one shape and dtype',
    ),
    ([image(2)], [np.zeros((2, 10))], 'one-hot labels'),
  ],
)
def test_errors_of_from_arrays(xs, ys, message):
  with pytest.raises(BadInput, match=message):
    from_arrays(xs, ys)


def spoilt(x=None, y=None):
  """Return the pool with other images or labels."""
  images = pool()
  return Images(images.x if x is None else x, images.y if y is None else y)


@pytest.mark.parametrize(
  ('images', 'got'),
  [
    (spoilt(x=pool().x[:9]), 'images (9, 2, 2, 1) and labels (10,)'),
    (spoilt(x=np.zeros(10)), 'images (10,) and labels (10,)'),
    (
      spoilt(y=np.eye(10, dtype=int)),
      'images (10, 2, 2, 1) and labels (10, 10)',
    ),
    (spoilt(y=np.zeros(10)), 'labels of dtype float64'),
    (spoilt(y=np.arange(10) - 1), 'labels from -1'),
    (spoilt(y=np.array([2**40] * 10)), 'labels from 1099511627776'),
    (spoilt(x=np.full((10, 2, 2, 1), 'a')), 'images of dtype <U1'),
    (spoilt(x=np.full((10, 2, 2, 1), None)), 'images of dtype object'),
    (spoilt(x=np.full((10, 2, 2, 1), 1j)), 'images of dtype complex128'),
    (spoilt(x=np.full((10, 2, 2, 1), np.nan)), '40 values that are NaN'),
    (spoilt(x=np.full((10, 2, 2, 1), np.inf)), '40 values that are NaN'),
  ],
)
def test_errors_of_images_and_labels(images, got):
  with pytest.raises(BadInput) as caught:
    stack_clients(images, RAGGED)
  message = str(caught.value)
  assert f"images: got '{got}" in message
  assert 'expected rows of finite numbers' in message
  assert 'Likely cause: one-hot or float labels' in message


@pytest.mark.parametrize(
  'rows', [[0.5], [[0, 1]], [True, False], 3, ['a'], [None]]
)
def test_errors_of_index_types(rows):
  with pytest.raises(BadInput) as caught:
    stack_clients(pool(), [rows])
  assert 'a vector of whole numbers for each client' in str(caught.value)
