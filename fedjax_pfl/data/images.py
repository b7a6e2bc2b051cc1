"""Image sets in memory, and fingerprints of their content.

An example may also be an input of the model as it is, of any shape: floats, or
whole numbers. It is then called an image all the same.
"""

import hashlib
from typing import NamedTuple

import numpy as np

IMAGE = 'uint8'  # the dtype of images; transforms make inputs of them


class Images(NamedTuple):
  """Examples of one split, before any transform."""

  x: np.ndarray  # [P, H, W, ch] uint8; or inputs [P, ...] float32 or int32
  y: np.ndarray  # [P] int32


class Shape(NamedTuple):
  """The shapes of an image set, known before any image is read."""

  image_shape: tuple[int, ...]  # (H, W, ch); of an input: its shape
  num_classes: int


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


def make_dataset(
  name: str, train: Images, test: Images, num_classes: int, note: str = ''
) -> Dataset:
  """Return the dataset, with the fingerprint of its arrays."""
  fingerprint = digest(*train, *test)
  return Dataset(name, train, test, num_classes, fingerprint, note)


def digest(*arrays: np.ndarray) -> str:
  """Return 12 hexadecimal digits of a hash of shapes, dtypes and contents."""
  content = hashlib.sha256()
  for array in arrays:
    content.update(f'{array.shape} {array.dtype.str};'.encode())
    content.update(np.ascontiguousarray(array).data)
  return content.hexdigest()[:12]
