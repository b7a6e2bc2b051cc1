"""Image sets in memory, and fingerprints of their content."""

import hashlib
from typing import NamedTuple

import numpy as np


class Images(NamedTuple):
  """Examples of one split, before any transform."""

  x: np.ndarray  # [P, H, W, ch] uint8
  y: np.ndarray  # [P] int32


class Shape(NamedTuple):
  """The shapes of an image set, known before any image is read."""

  image_shape: tuple[int, int, int]  # (H, W, ch)
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
