"""Make `ClientData` from arrays, or from images and index vectors.

An accelerator stores an array in tiles, whose layout suits the arithmetic of
its last axes: of `[P, 32, 32, 3]` bytes XLA copied the whole pool in every
round of a TPU's program (768 MB of traffic, 586 MiB of memory). So it holds
rows `[P, 3072]`, and a batch is reshaped after it was gathered.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import CLASSES, Array, ClientData
from fedjax_pfl.data.batching import is_float, of_labels
from fedjax_pfl.data.images import Images, Shape, aligned

PLACEMENTS = ('device', 'host')


def stack_clients(
  images: Images, indices: Sequence[np.ndarray], placement: str = 'device'
) -> ClientData:
  """Return the clients whose examples are rows of one set of images.

  The images are stored once; a client adds its row of indices, padded with 0
  (a valid index) up to the largest client.

  Args:
    images: all examples, `dataset.train` or `dataset.test`; or two arrays.
    indices: for each of K clients a vector of rows of the images, as
      `partition` returns them.
    placement: where the indices are: 'device', or 'host' as numpy arrays; then
      an accelerator has no examples but those of a cohort, while they are used.

  Returns:
    ClientData with index [K, N] and count [K]; N is the largest count.

  >>> images = pfl.load_dataset('digits').train
  >>> data = pfl.stack_clients(images, [np.arange(3), np.arange(3, 8)])
  >>> data.x.shape, data.index.shape, data.count.tolist()
  ((1442, 8, 8, 1), (2, 5), [3, 5])
  """
  one_of(PLACEMENTS, 'where indices are').check('placement', placement)
  images = Images(*images)
  if is_float(images.y) and images.y.ndim == 1:
    images = Images(images.x, images.y[:, None])
  check_images(images)
  indices, wrong = as_rows(indices, len(images.y))
  if wrong or not indices:
    raise bad_input(
      'indices',
      got=wrong or 'no client',
      expected='for one client or more a vector of whole numbers: rows of the '
      f'pool, 0 to {len(images.y) - 1}',
      cause='a mask in the place of rows, or indices of the training set used '
      'with the test set',
    )
  count = np.array([len(rows) for rows in indices], np.int32)
  # At least one column: an empty gather has no first row to stand for padding.
  index = np.zeros((len(indices), max(1, count.max())), np.int32)  # [K, N]
  for row, rows in zip(index, indices, strict=True):
    row[: len(rows)] = rows
  dtype = jnp.result_type(float) if is_float(images.y) else jnp.int32
  if placement == 'device':
    index, count = jnp.asarray(index), jnp.asarray(count)
  elif target() != 'cpu' and isinstance(images.x, np.ndarray):
    return ClientData(images.x, np.asarray(images.y, dtype), index, count)
  x, y = pool_of(images.x), jnp.asarray(images.y, dtype)
  return ClientData(x, y, index, count)


def from_arrays(
  xs: Sequence[np.ndarray], ys: Sequence[np.ndarray]
) -> ClientData:
  """Return the clients that hold x_i and y_i, for i = 0 .. K-1.

  Args:
    xs: for each of K clients its images [n_i, H, W, ch], or the rows of a
      matrix [n_i, D]. They keep their dtype
      (float64 only with jax_enable_x64); images that are model inputs already
      go with the transforms called 'none'.
    ys: for each client its labels [n_i], integers from 0; of tokens [n_i, L],
      -1 where one has none. Floats [n_i] or [n_i, M] are no classes: numbers,
      bits, or (time, event), for a loss that takes them.

  Returns:
    ClientData with index [K, N] and count [K]; N is the largest n_i.

  >>> xs = [np.zeros((3, 8, 8, 1)), np.zeros((5, 8, 8, 1))]
  >>> data = pfl.from_arrays(xs, [np.zeros(3, int), np.ones(5, int)])
  >>> data.index.shape, data.count.tolist()
  ((2, 5), [3, 5])
  """
  xs, ys = [_array_of(x) for x in xs], [_array_of(y) for y in ys]
  kinds = {(x.shape[1:], x.dtype.name) for x in xs}
  sizes = [[array.shape[:1] for array in side] for side in (xs, ys)]
  labels = {y.shape[1:] for y in ys}
  floats = {shape for y in ys if is_float(y) for shape in [y.shape[1:]]}
  is_known = labels in ({()}, {shape for shape, _ in kinds}, floats)
  is_known &= () not in sizes[0]  # a number, or images of several shapes
  if len(kinds) != 1 or sizes[0] != sizes[1] or not is_known:
    shapes = [[*map(user_code.describe, side[:3])] for side in (xs, ys)]
    raise bad_input(
      'xs, ys',
      got=f'{len(xs)} and {len(ys)} clients, the first {shapes}',
      expected='for one client or more an array x of images, all of one shape '
      'and dtype, and as many labels y of shape [n], or [n, L] of tokens',
      cause='one client that is not in a list: write [x], [y]; one that was '
      'preprocessed differently; or one-hot labels',
    )
  ends = np.cumsum(sizes[0])
  rows = np.split(np.arange(ends[-1]), ends[:-1])
  # No labels, [], are floats in numpy, and would make all labels floats.
  ys = [y if len(y) else y.astype(np.uint8) for y in ys]
  x = aligned((ends[-1], *xs[0].shape[1:]), xs[0].dtype)
  np.concatenate(xs, out=x)
  x.flags.writeable = False
  return stack_clients(Images(x, np.concatenate(ys)), rows)


def client_of(data: ClientData, client: int | Array) -> ClientData:
  """Return the data of one client: index [N], count []; or of several."""
  return ClientData(data.x, data.y, data.index[client], data.count[client])


def shapes_of_clients(
  shape: Shape, num_clients: int, size: int = 1
) -> ClientData:
  """Return the shapes of clients of so many examples each."""
  of_integers = (num_clients, size), (num_clients,)
  labels = 'int32' if shape.kind == CLASSES else jnp.result_type(float)
  return ClientData(
    jax.ShapeDtypeStruct((1, *shape.image_shape), shape.dtype),
    jax.ShapeDtypeStruct((1, *shape.labels), labels),
    *(jax.ShapeDtypeStruct(sides, 'int32') for sides in of_integers),
  )


def describe(data: ClientData) -> str:
  """Return one line: how many clients, how large, how much padding."""
  count = np.asarray(data.count)
  sizes = f'{count.min():,} each'
  if count.min() < count.max():
    middle = f'{np.median(count):,.0f}'
    sizes = f'{count.min():,} to {count.max():,} each, median {middle}'
  padding = 1 - count.sum() / data.index.size  # 1 - sum_k n_k / (K N)
  return (
    f'{len(count):,} client{"s" * (len(count) > 1)}, {count.sum():,} examples, '
    f'{sizes}; padding {100 * padding:.1f} %'
  )


def describe_empty_clients(train: ClientData, test: ClientData) -> str:
  """Return a line about clients without examples; '' if there are none."""
  no_train, no_test = (np.asarray(data.count) == 0 for data in (train, test))
  either = int((no_train | no_test).sum())
  text = (
    f'Clients without training examples: {no_train.sum():,} of '
    f'{len(no_train):,}; without test examples: {no_test.sum():,}; left out of '
    f'all means: {either:,}. They are kept and counted.'
  )
  return text if either else ''


def as_rows(given: Iterable[Any], size: int) -> tuple[list[np.ndarray], str]:
  """Return the rows of every client, and what is wrong with them; or ''."""
  indices = []
  for client, numbers in enumerate(given):
    rows = _array_of(numbers)
    indices.append(rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in 'iu'):
      return indices, f'{user_code.describe(rows)} for client {client}'
    if rows.size and not 0 <= rows.min() <= rows.max() < size:
      return indices, f'rows from {rows.min()} to {rows.max()}'
  return [rows.astype(np.int64) for rows in indices], ''


def _array_of(given: Any) -> np.ndarray:
  """Return the array of these numbers; one of None where shapes differ."""
  try:
    return np.asarray(given)
  except ValueError:  # lists of unlike lengths
    return np.array(None)


def check_images(images: Images) -> None:
  """Raise BadInput for images or labels of a wrong shape, dtype or value.

  Values are read in numpy arrays only: to copy those of a device takes time.
  """
  x, y = images
  is_shape = len(x) == len(y) and x.ndim >= 2
  is_tokens = x.ndim == 2 and x.shape == y.shape and x.dtype.kind in 'iu'
  is_shape &= y.ndim == 1 or is_tokens or (is_float(y) and y.ndim == 2)
  has_floats = is_float(x)
  is_number = has_floats or x.dtype.kind in 'biu'
  on_host, got = isinstance(y, np.ndarray), ''
  is_label = is_float(y) or jnp.issubdtype(y.dtype, np.integer)
  if not (is_shape and is_number and is_label):
    got = f'images {user_code.describe(x)} and labels {user_code.describe(y)}'
  elif on_host and is_float(y):
    got = '' if np.isfinite(y).all() else 'labels that are NaN or infinite'
  elif on_host and y.size and not 1 - y.ndim <= y.min() <= y.max() < 2**31:
    got = f'labels from {y.min()} to {y.max()}'
  elif has_floats and isinstance(x, np.ndarray) and not np.isfinite(x).all():
    got = 'values that are NaN or infinite'
  if got:
    raise bad_input(
      'images',
      got=got,
      expected='rows of finite numbers [P, H, W, ch] and as many labels [P], '
      'whole numbers from 0; of tokens [P, L], -1 for none; or finite floats',
      cause='one-hot labels, labels from 1 or -1 for "none", or '
      'images that were divided by 0',
    )


# ---- images on the device ----------------------------------------------------


@struct.dataclass
class ImagePool:
  """Images [P, *shape] as rows [P, n]; it is indexed as the images would be."""

  rows: Array
  image_shape: tuple[int, ...] = struct.field(pytree_node=False)

  @property
  def shape(self) -> tuple[int, ...]:
    return (*self.rows.shape[:1], *self.image_shape)

  @property
  def dtype(self) -> Any:
    return self.rows.dtype

  @property
  def ndim(self) -> int:
    return len(self.shape)

  def __len__(self) -> int:
    return self.rows.shape[0]

  def __getitem__(self, index: Array | slice) -> Array:
    """Return the images of these rows, [..., *shape]."""
    rows = self.rows[index]
    return rows.reshape(*rows.shape[:-1], *self.image_shape)


def pool_of(images: np.ndarray | Array | ImagePool) -> Array | ImagePool:
  """Return the images [P, H, W, ch] on the device, as suits the target.

  All devices of a CPU use an array of numpy that is aligned and that nobody can
  write, such as one mapped from a file; another one is copied, once.
  """
  if isinstance(images, ImagePool):
    return images
  if target() == 'cpu':
    is_fixed = isinstance(images, np.ndarray) and not images.flags.writeable
    return jax.device_put(images) if is_fixed else jnp.asarray(images)
  return _in_rows(images)


def _in_rows(images: np.ndarray | Array) -> ImagePool:
  size, *shape = images.shape
  rows = images.reshape(size, math.prod(shape))
  return ImagePool(jnp.asarray(rows), tuple(shape))


def on_device(data: ClientData) -> ClientData:
  """Return the data with the pool of all on the device."""
  return data._replace(x=pool_of(data.x), y=jnp.asarray(data.y))


def with_own_pool(data: ClientData) -> ClientData:
  """Return clients [C, N] with their own rows alone, moved to the device.

  Only if the pool of all is on the host. The new one has min(P, C N) rows, so
  that one program serves all cohorts.
  """
  if not isinstance(data.x, np.ndarray):
    return data
  rows, index = np.unique(data.index, return_inverse=True)
  size = min(len(data.x), index.size)
  rows = np.pad(rows, (0, size - len(rows)), 'edge')  # which no client reads
  return data._replace(
    x=_in_rows(data.x[rows]),
    y=jnp.asarray(data.y[rows]),
    index=index.reshape(data.index.shape).astype(np.int32),
  )


# ---- how many examples of every class clients hold, or tokens ----------------


def label_counts(data: ClientData, num_classes: int) -> Array:
  """Return the label counts of ONE client: [Y] int."""
  real = jnp.arange(data.index.shape[0]) < data.count  # [N]
  y, real = of_labels(data.y[data.index], real)
  none = jnp.zeros(num_classes, jnp.int32)
  return none.at[y].add(real.astype(jnp.int32))


def label_counts_of_clients(data: ClientData, num_classes: int) -> np.ndarray:
  """Return the label counts of every client, computed on the host: [K, Y]."""
  index, count = np.asarray(data.index), np.asarray(data.count)
  client, column = np.nonzero(np.arange(index.shape[1]) < count[:, None])
  label = np.asarray(data.y)[index[client, column]]
  if label.ndim == 2:  # of tokens, of which some have none
    client = np.repeat(client, label.shape[1])[label.ravel() >= 0]
    label = label[label >= 0]
  size = len(count) * num_classes
  flat = np.bincount(client * num_classes + label, minlength=size)
  return flat.reshape(len(count), num_classes)


def label_shares(counts: Any) -> np.ndarray:
  """Return the shares [K, Y] of counts [K, Y]; zeros for an empty client."""
  counts = np.asarray(counts, np.float64)
  return counts / np.maximum(counts.sum(1, keepdims=True), 1)
