"""Make `ClientData` from arrays, or from images and index vectors."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.image_pool import pool_of
from fedjax_pfl.data.images import Images

PLACEMENTS = ('device', 'host')


def stack_clients(
  images: Images, indices: Sequence[np.ndarray], placement: str = 'device'
) -> ClientData:
  """Return the clients whose examples are rows of one set of images.

  The images are stored once; a client adds its row of indices, padded with 0
  (a valid index) up to the largest client.

  Args:
    images: all examples, `dataset.train` or `dataset.test`.
    indices: for each of K clients a vector of rows of the images, as
      `partition` returns them.
    placement: where the indices are: 'device', or 'host' as numpy arrays.

  Returns:
    ClientData with index [K, N] and count [K]; N is the largest count.

  >>> images = pfl.load_dataset('digits').train
  >>> data = pfl.stack_clients(images, [np.arange(3), np.arange(3, 8)])
  >>> data.x.shape, data.index.shape, data.count.tolist()
  ((1442, 8, 8, 1), (2, 5), [3, 5])
  """
  indices = [np.asarray(rows) for rows in indices]
  _check_images(images)
  _check_indices(indices, len(images.y))
  count = np.array([len(rows) for rows in indices], np.int32)
  # At least one column: an empty gather has no first row to stand for padding.
  index = np.zeros((len(indices), max(1, count.max())), np.int32)  # [K, N]
  for row, own in zip(index, indices, strict=True):
    row[: len(own)] = own
  if placement == 'device':
    index, count = jnp.asarray(index), jnp.asarray(count)
  return ClientData(
    pool_of(images.x), jnp.asarray(images.y, jnp.int32), index, count
  )


def from_arrays(
  xs: Sequence[np.ndarray], ys: Sequence[np.ndarray]
) -> ClientData:
  """Return the clients that hold x_i and y_i, for i = 0 .. K-1.

  Args:
    xs: for each of K clients its images [n_i, H, W, ch]. They keep their dtype
      (float64 only with jax_enable_x64); images that are model inputs already
      go with the transforms called 'none'.
    ys: for each client its labels [n_i], integers from 0.

  Returns:
    ClientData with index [K, N] and count [K]; N is the largest n_i.

  >>> xs = [np.zeros((3, 8, 8, 1)), np.zeros((5, 8, 8, 1))]
  >>> data = pfl.from_arrays(xs, [np.zeros(3, int), np.ones(5, int)])
  >>> data.index.shape, data.count.tolist()
  ((2, 5), [3, 5])
  """
  xs, ys = [np.asarray(x) for x in xs], [np.asarray(y) for y in ys]
  _check_arrays(xs, ys)
  ends = np.cumsum([len(y) for y in ys])
  rows = np.split(np.arange(ends[-1]), ends[:-1])
  return stack_clients(Images(np.concatenate(xs), np.concatenate(ys)), rows)


def padding_share(data: ClientData) -> float:
  """Return the share of padded rows: 1 - sum_k n_k / (K N)."""
  return 1 - float(np.sum(np.asarray(data.count))) / data.index.size


def describe(data: ClientData) -> str:
  """Return one line: how many clients, how large, how much padding."""
  count = np.asarray(data.count)
  sizes = f'{count.min():,} each'
  if count.min() < count.max():
    middle = f'{np.median(count):,.0f}'
    sizes = f'{count.min():,} to {count.max():,} each, median {middle}'
  return (
    f'{len(count):,} client{"s" * (len(count) > 1)}, {count.sum():,} examples, '
    f'{sizes}; padding {100 * padding_share(data):.1f} %'
  )


def describe_empty_clients(train: ClientData, test: ClientData) -> str:
  """Return a line about clients without examples; '' if there are none."""
  no_train, no_test = (np.asarray(data.count) == 0 for data in (train, test))
  either = int((no_train | no_test).sum())
  if not either:
    return ''
  return (
    f'Clients without training examples: {no_train.sum():,} of '
    f'{len(no_train):,}; without test examples: {no_test.sum():,}; left out of '
    f'all means: {either:,}. They are kept and counted.'
  )


def _check_images(images: Images) -> None:
  """Raise BadInput for images or labels of a wrong shape, dtype or value.

  Values are read in numpy arrays only: to copy those of a device takes time.
  """
  x, y = images
  got = None
  if len(x) != len(y) or x.ndim < 2 or y.ndim != 1:
    got = f'images {x.shape} and labels {y.shape}'
  elif not any(_is(x, kind) for kind in (np.integer, np.floating, np.bool_)):
    got = f'images of dtype {x.dtype}'
  elif not _is(y, np.integer):
    got = f'labels of dtype {y.dtype}'
  elif isinstance(y, np.ndarray) and len(y) and not 0 <= y.min() < 2**31:
    got = f'labels from {y.min()}'
  elif isinstance(x, np.ndarray) and _is(x, np.floating) and _has_nan(x):
    got = 'values that are NaN or infinite'
  if got:
    raise bad_input(
      'images',
      got=got,
      expected='rows of finite numbers [P, H, W, ch] and as many labels [P], '
      'whole numbers from 0',
      cause='one-hot or float labels, labels from 1 or -1 for "none", or '
      'images that were divided by 0',
    )


def _has_nan(x: np.ndarray) -> bool:
  return not np.isfinite(x).all()


def _is(array: np.ndarray, kind: type) -> bool:
  return jnp.issubdtype(array.dtype, kind)


def _check_indices(indices: Sequence[np.ndarray], size: int) -> None:
  got = 'no client' if not len(indices) else None
  for rows in indices:
    if rows.ndim != 1 or not (_is(rows, np.integer) or not rows.size):
      got = f'{rows.dtype}{list(rows.shape)}'
    elif rows.size and not 0 <= rows.min() <= rows.max() < size:
      got = f'rows from {rows.min()} to {rows.max()}'
  if got:
    raise bad_input(
      'indices',
      got=got,
      expected='for one client or more a vector of whole numbers: rows of the '
      f'pool, 0 to {size - 1}',
      cause='a mask in the place of rows, or indices of the training set used '
      'with the test set',
    )


def _check_arrays(xs: list[np.ndarray], ys: list[np.ndarray]) -> None:
  arrays, kinds = [*xs, *ys], {(x.shape[1:], x.dtype.name) for x in xs}
  got = None
  if not arrays or any(array.ndim == 0 for array in arrays):
    got = 'a single number' if arrays else 'no client'
  elif [*map(len, xs)] != [*map(len, ys)]:
    got = f'{[*map(len, xs)]} images and {[*map(len, ys)]} labels'
  elif len(kinds) > 1 or any(y.ndim != 1 for y in ys):
    got = f'rows of {sorted(kinds)}, labels of {ys[0].shape}'
  if got:
    raise bad_input(
      'xs, ys',
      got=got,
      expected='for one client or more an array x of images, all of one shape '
      'and dtype, and as many labels y of shape [n]',
      cause='one client that is not in a list: write [x], [y]; one that was '
      'preprocessed differently; or one-hot labels',
    )
