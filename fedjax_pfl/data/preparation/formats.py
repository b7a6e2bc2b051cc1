"""From the bytes of the official archives to (train, test).

Their digests were compared before: whatever does not fit here is a mistake of
ours. Everything is read as numbers; CIFAR's `python version`, a pickle, is not
used. Sets whose release numbers no image come in the order in which TensorFlow
Datasets stores them (`tfds_order`): a partition draws rows, so the same client
has the same images only in the same order.
"""

import gzip
import hashlib
import math
import pathlib
import tarfile
import zipfile
from collections.abc import Sequence
from typing import IO

import numpy as np

from fedjax_pfl.data.images import Images

CIFAR_SHAPE = (3, 32, 32)  # a colour after the other
CIFAR10_TRAIN = tuple(f'data_batch_{k}.bin' for k in range(1, 6))
EMNIST = 'gzip/emnist-byclass-{}-{}-ubyte.gz'
Files = Sequence[pathlib.Path]


def read_cifar10(files: Files) -> tuple[Images, Images]:
  """Return (train, test), in the order of the release."""
  return _read_cifar(files[0], CIFAR10_TRAIN, ('test_batch.bin',), 1)


def read_cifar100(files: Files) -> tuple[Images, Images]:
  """Return (train, test) with the fine labels, in the order of the release."""
  return _read_cifar(files[0], ('train.bin',), ('test.bin',), 2)


def read_mnist(files: Files) -> tuple[Images, Images]:
  """Return (train, test) of four .gz files, in the order of tfds."""
  x_train, y_train, x_test, y_test = map(_read_idx, files)
  return (
    _in_tfds_order('train', x_train, y_train),
    _in_tfds_order('test', x_test, y_test),
  )


def read_emnist(files: Files) -> tuple[Images, Images]:
  """Return (train, test), upright, in the order of tfds."""
  splits = []
  with zipfile.ZipFile(files[0]) as archive:
    for split in ('train', 'test'):
      arrays = []
      for kind in ('images-idx3', 'labels-idx1'):
        with archive.open(EMNIST.format(split, kind)) as stream:
          arrays.append(_read_idx(stream))
      x, y = arrays  # the files hold columns as rows
      splits.append(_in_tfds_order(split, x.swapaxes(1, 2), y))
  train, test = splits
  return train, test


def read_svhn(files: Files) -> tuple[Images, Images]:
  """Return (train, test), in the order of the release; digit 0 has label 0."""
  from scipy import io

  splits = []
  for file in files:
    arrays = io.loadmat(file, variable_names=('X', 'y'))
    x = np.ascontiguousarray(np.moveaxis(arrays['X'], -1, 0))  # [P, 32, 32, 3]
    assert x.dtype == np.uint8 and x.shape[1:] == (32, 32, 3), x.shape
    splits.append(Images(x, _labels(arrays['y'].ravel() % 10)))  # 10 is a 0
  train, test = splits
  return train, test


def tfds_order(split: str, size: int) -> np.ndarray:
  """Return the rows [size] of a release, as tfds stores them.

    h(i) = md5(split + str(i)),  ascending

  About a microsecond a row.
  """
  salted = hashlib.md5(split.encode(), usedforsecurity=False)

  def place(row: int) -> bytes:
    state = salted.copy()
    state.update(str(row).encode())
    return state.digest()

  return np.array(sorted(range(size), key=place), np.int64)


def _read_cifar(
  file: pathlib.Path,
  train: Sequence[str],
  test: Sequence[str],
  num_labels: int,
) -> tuple[Images, Images]:
  """Read rows of labels, the last one wanted, and 3,072 bytes of an image."""
  found = {}
  with tarfile.open(file) as archive:
    for member in archive:
      name = pathlib.PurePosixPath(member.name).name
      if name in (*train, *test):
        found[name] = archive.extractfile(member).read()

  def split(names: Sequence[str]) -> Images:
    content = b''.join(found[name] for name in names)
    width = num_labels + math.prod(CIFAR_SHAPE)
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    x = rows[:, num_labels:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1)
    return Images(np.ascontiguousarray(x), _labels(rows[:, num_labels - 1]))

  return split(train), split(test)


def _read_idx(file: pathlib.Path | IO[bytes]) -> np.ndarray:
  """Return the array of a gzipped IDX file: magic, sizes, bytes."""
  with gzip.open(file) as content:
    zeros, kind, rank = content.read(2), *content.read(2)
    assert zeros == b'\0\0' and kind == 8, 'no IDX file of bytes'
    shape = np.frombuffer(content.read(4 * rank), '>u4').astype(int)
    return np.frombuffer(content.read(), np.uint8).reshape(shape)


def _in_tfds_order(split: str, x: np.ndarray, y: np.ndarray) -> Images:
  assert len(x) == len(y), f'{split}: {len(x)} images, {len(y)} labels'
  order = tfds_order(split, len(y))
  return Images(np.ascontiguousarray(x[order])[..., None], _labels(y[order]))


def _labels(y: np.ndarray) -> np.ndarray:
  return y.astype(np.int32)


READERS = {
  'cifar10': read_cifar10,
  'cifar100': read_cifar100,
  'emnist/byclass': read_emnist,
  'mnist': read_mnist,
  'fashion_mnist': read_mnist,
  'svhn_cropped': read_svhn,
}
