"""Image sets in memory, fingerprints of their content, and other sizes.

An example may also be an input of the model as it is, of any shape.
"""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.types import CLASSES

IMAGE = 'uint8'  # the dtype of images; transforms make inputs of them
SPLITS = ('train', 'test')
ALIGNMENT = 64  # bytes; of other addresses XLA makes a copy


class Images(NamedTuple):
  """Examples of one split, before any transform."""

  x: np.ndarray  # [P, H, W, ch] uint8; or inputs [P, ...] float32 or int32
  y: np.ndarray  # [P] int32; no classes: [P, M] float32


Owned = tuple[Images, Images, tuple[np.ndarray, np.ndarray]]  # and clients


class Shape(NamedTuple):
  """What is known of an image set before any image is read."""

  image_shape: tuple[int, ...]  # (H, W, ch); of an input: its shape
  num_classes: int
  dtype: str = IMAGE  # of the examples
  labels: tuple[int, ...] = ()  # of an example: (L,) where each token has one
  kind: str = CLASSES  # of labels; if no classes, `labels` are (M,) floats
  num_clients: int = 0  # who hold the examples; 0: nobody, or not known
  has_tests: bool = True  # examples of its own for testing

  @property
  def num_labels(self) -> int:
    """Return how many labels an example has: 1, or those of its tokens."""
    return math.prod(self.labels) if self.kind == CLASSES else 1


class Dataset(NamedTuple):
  """A named image set."""

  name: str
  train: Images
  test: Images
  num_classes: int
  fingerprint: str  # of the content: equal on every machine
  note: str = ''  # a sentence for the user
  # The client of every example, for training [P] and for testing, where known.
  clients: tuple[np.ndarray, np.ndarray] | None = None
  client_names: Sequence[str] = ()  # by their numbers; () where they have none
  class_names: Sequence[str] = ()
  columns: Sequence[str] = ()  # of a table, which is imputed and standardised
  scales: Sequence[Any] = ()  # by which: one, or that of each client who trains


class Synthetic(NamedTuple):
  """The settings of a synthetic image set."""

  image_shape: tuple[int, int, int] = (16, 16, 1)  # (H, W, ch)
  num_classes: int = 10
  train_size: int = 5000
  test_size: int = 1000
  seed: int = 0


class Table(NamedTuple):
  """Which columns of a table are what; all others are features."""

  label: tuple[str, ...] = ()
  client: str = ''
  split: str = ''
  kind: str = CLASSES  # of labels
  group: str = ''  # whose rows belong together, as a patient's


class Where(NamedTuple):
  """An image set, as the user names it; see `datasets.load_dataset`."""

  name: str
  data_dir: str = ''
  synthetic: Synthetic = Synthetic()
  log_fn: Callable[[str], None] = lambda _: None
  side: int = 0  # of image files: scaled to side x side when they are decoded
  table: Table = Table()


def make_dataset(
  name: str, train: Images, test: Images, num_classes: int
) -> Dataset:
  """Return the dataset, with the fingerprint of its arrays.

  The fingerprint has the number of classes, too, if labels show another one.
  """
  arrays, labels = [*train, *test], np.concatenate([train.y, test.y])
  if name in ('npz', 'pfllib') and num_classes != 1 + labels.max():
    arrays.append(np.array(num_classes))
  return Dataset(name, train, test, num_classes, digest(*arrays))


def divide(x: np.ndarray, y: np.ndarray, is_test: np.ndarray) -> list[Images]:
  """Return the examples for training, and those for testing."""
  masks = ~is_test, is_test
  return [Images(x[mask], y[mask].astype(np.int32)) for mask in masks]


def joined(train: Sequence[Images], test: Sequence[Images]) -> Owned:
  """Return the examples of all clients, and who holds them."""
  splits, owners = [], []
  for clients in (train, test):
    splits.append(Images(*map(np.concatenate, zip(*clients, strict=True))))
    sizes = [len(client.y) for client in clients]
    owners.append(np.repeat(np.arange(len(clients)), sizes))
  return *splits, tuple(owners)


def aligned(shape: Sequence[int], dtype: Any) -> np.ndarray:
  """Return an array to be filled, which a CPU's devices can use uncopied."""
  size = math.prod(shape) * np.dtype(dtype).itemsize
  memory = np.empty(size + ALIGNMENT, np.uint8)
  first = -memory.ctypes.data % ALIGNMENT
  return memory[first : first + size].view(dtype).reshape(shape)


def natural_key(name: str) -> list[str | int]:
  """Return a key by which client2 comes before client10.

  >>> sorted(['b10', 'b9', 'a'], key=natural_key)
  ['a', 'b9', 'b10']
  """
  parts = re.split(r'(\d+)', name)
  return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def digest(*arrays: np.ndarray) -> str:
  """Return 12 hexadecimal digits of a hash of shapes, dtypes and contents."""
  content = hashlib.sha256()
  for array in arrays:
    content.update(f'{array.shape} {array.dtype.str};'.encode())
    content.update(np.ascontiguousarray(array).data)
  return content.hexdigest()[:12]


def scale_shape(shape: Shape, side: int) -> Shape:
  """Return the shape of `scale_images`; side 0 changes nothing."""
  if not side:
    return shape
  *_, channels = shape.image_shape
  return shape._replace(image_shape=(side, side, channels))


def scale_images(dataset: Dataset, side: int) -> Dataset:
  """Return the images scaled to side x side; side 0 changes nothing.

  With PIL's bilinear filter, which averages when it shrinks; the results are
  uint8. Tiny-ImageNet takes some 10 seconds.
  """
  if not side or dataset.train.x.shape[1:3] == (side, side):
    return dataset
  splits = dataset.train, dataset.test
  train, test = (split._replace(x=_scale(split.x, side)) for split in splits)
  fingerprint = digest(*train, *test)
  return dataset._replace(train=train, test=test, fingerprint=fingerprint)


def squared(image: Any, side: int) -> Any:
  """Return the image of PIL at side x side, whatever its shape was."""
  from PIL import Image

  return image.resize((side, side), Image.Resampling.BILINEAR)


def _scale(x: np.ndarray, side: int) -> np.ndarray:
  from PIL import Image

  def scale(pixels: np.ndarray) -> np.ndarray:
    image = Image.fromarray(pixels[..., 0] if x.shape[-1] == 1 else pixels)
    return np.asarray(squared(image, side)).reshape(side, side, -1)

  with futures.ThreadPoolExecutor() as pool:  # PIL frees the interpreter lock
    scaled = np.array(list(pool.map(scale, x)), np.uint8)
  return scaled.reshape(len(x), side, side, x.shape[-1])  # of no image, too
