"""From the bytes of the official archives to (train, test).

The digests of the archives were checked before, so that an error here is a bug.
CIFAR's `python version`, a pickle, is not used. If a release does not number
its images, they have the order of TensorFlow Datasets (`tfds_order`): a client
has the same images only in the same order.
"""

import gzip
import hashlib
import io
import math
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from typing import IO

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.images import SPLITS, Images, Shape
from fedjax_pfl.data.preparation.texts import read_play

CIFAR_SHAPE = (3, 32, 32)  # a colour after the other
# The files of both splits, and the labels of an image.
CIFAR10 = [f'data_batch_{k}.bin' for k in range(1, 6)], ['test_batch.bin'], 1
CIFAR100 = ['train.bin'], ['test.bin'], 2
EMNIST = 'gzip/emnist-byclass-{}-{}-ubyte.gz'
TINY = 'tiny-imagenet-200/'  # the folder in its archive
GZIP, BYTES = b'\x1f\x8b', b'\0\0\x08'  # how files of these kinds begin
RANKS = {'images': 3, 'labels': 1}
Files = Sequence[pathlib.Path]
Splits = tuple[Images, Images]


def read_cifar(
  files: Files, train: Sequence[str], test: Sequence[str], num_labels: int
) -> Splits:
  """Return (train, test), in the order of the release.

  A row is its labels, of which the last is the fine one, and 3,072 bytes.
  """
  contents = {}
  with tarfile.open(files[0]) as archive:
    for member in archive:
      name = pathlib.PurePosixPath(member.name).name
      if name in (*train, *test):
        contents[name] = archive.extractfile(member).read()

  def split(names: Sequence[str]) -> Images:
    content = b''.join(contents[name] for name in names)
    width = num_labels + math.prod(CIFAR_SHAPE)
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    x = rows[:, num_labels:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1)
    return _images(x, rows[:, num_labels - 1])

  return split(train), split(test)


def read_mnist(files: Files) -> Splits:
  """Return (train, test) of four IDX files, in the order of tfds."""
  *train, x, y = map(read_idx, files)
  return _in_tfds_order('train', *train), _in_tfds_order('test', x, y)


def read_emnist(files: Files) -> Splits:
  """Return (train, test), upright, in the order of tfds."""
  splits = []
  with zipfile.ZipFile(files[0]) as archive:
    for split in SPLITS:
      x, y = (
        read_idx(io.BytesIO(archive.read(EMNIST.format(split, kind))))
        for kind in ('images-idx3', 'labels-idx1')
      )
      # The files hold columns as rows.
      splits.append(_in_tfds_order(split, x.swapaxes(1, 2), y))
  return tuple(splits)


def read_svhn(files: Files) -> Splits:
  """Return (train, test), in the order of the release; digit 0 has label 0."""
  from scipy import io

  splits = []
  for file in files:
    arrays = io.loadmat(file, variable_names=('X', 'y'))
    x = np.moveaxis(arrays['X'], -1, 0)  # [P, 32, 32, 3]
    splits.append(_images(x, arrays['y'].ravel() % 10))  # 10 is a 0
  return tuple(splits)


def read_tiny_imagenet(files: Files) -> Splits:
  """Return (train, val): by class and name, and by name; tests lack labels."""
  from PIL import Image

  with zipfile.ZipFile(files[0]) as archive:
    names = sorted(n for n in archive.namelist() if n.endswith('.JPEG'))
    notes = archive.read(f'{TINY}val/val_annotations.txt').decode()
    class_of = dict(line.split()[:2] for line in notes.splitlines())
    of = lambda folder: [n for n in names if n.startswith(TINY + folder)]
    train, test = of('train/'), of('val/')
    y_train = [name.split('/')[2] for name in train]
    y_test = [class_of[name.split('/')[-1]] for name in test]
    classes = sorted({*y_train})

    def split(names: list[str], labels: list[str]) -> Images:
      images = (Image.open(archive.open(n)).convert('RGB') for n in names)
      y = np.array([*map(classes.index, labels)])
      return _images(np.stack([*map(np.asarray, images)]), y)

    return split(train, y_train), split(test, y_test)


def tfds_order(split: str, size: int) -> np.ndarray:
  """Return the rows [size] of a release, as tfds stores them.

  h(i) = md5(split + str(i)),  ascending

  Their hash is public and stable; sets that tfds wrote have equal fingerprints.
  """

  def order(row: int) -> bytes:
    text = f'{split}{row}'.encode()
    return hashlib.md5(text, usedforsecurity=False).digest()

  return np.array(sorted(range(size), key=order), np.int64)


def _in_tfds_order(split: str, x: np.ndarray, y: np.ndarray) -> Images:
  order = tfds_order(split, len(y))
  return _images(x[order][..., None], y[order])


def _images(x: np.ndarray, y: np.ndarray) -> Images:
  assert x.dtype == np.uint8 and len(x) == len(y), (x.dtype, x.shape, y.shape)
  return Images(np.ascontiguousarray(x), y.astype(np.int32))


READERS = {
  'cifar10': lambda files: read_cifar(files, *CIFAR10),
  'cifar100': lambda files: read_cifar(files, *CIFAR100),
  'emnist/byclass': read_emnist,
  'mnist': read_mnist,
  'fashion_mnist': read_mnist,
  'svhn_cropped': read_svhn,
  'tiny_imagenet': read_tiny_imagenet,
  'shakespeare': read_play,
}


# ---- IDX files, the format of MNIST: 00 00, a type, a rank, sizes, bytes


def read_idx(file: pathlib.Path | IO[bytes]) -> np.ndarray:
  """Return the array of an IDX file of bytes, gzipped or not."""
  content = file.read_bytes() if isinstance(file, pathlib.Path) else file.read()
  if content.startswith(GZIP):
    content = gzip.decompress(content)
  head = 4 + 4 * content[3] if len(content) > 3 else 4
  if not content.startswith(BYTES) or len(content) < head:
    raise ValueError(f'begins with {content[:4].hex(" ")}, not with 00 00 08')
  sizes = np.frombuffer(content[4:head], '>u4').tolist()
  if (held := len(content) - head) != math.prod(sizes):
    of = 'x'.join(map(str, sizes))
    raise ValueError(f'holds {held:,} bytes, by its header {of}')
  return np.frombuffer(content, np.uint8, offset=head).reshape(sizes)


def find_files(folder: pathlib.Path, shape: Shape) -> list[pathlib.Path]:
  """Return the files of a folder, checked: x and y, for training and testing.

  Named as in MNIST's release, `train-images-idx3-ubyte` and so on; also with
  .gz, or with a dot before `idx`, as some copies are. Refused are files that
  are missing, and others than images of this shape, each with a known label.
  """
  files = []
  for split in ('train', 't10k'):
    pair = [_find(folder, split, kind) for kind in RANKS]
    x, y = map(_read, pair)
    files += pair
    if x.shape != (len(y), *shape.image_shape[:2]) or y.ndim != 1 or not y.size:
      sizes = ' and '.join('x'.join(map(str, array.shape)) for array in (x, y))
      raise _refusal(f'{pair[0]} and the labels with {sizes} bytes', shape)
    if y.max() >= shape.num_classes:
      raise _refusal(f'{pair[1]} with the label {y.max()}', shape)
  return files


def _find(folder: pathlib.Path, split: str, kind: str) -> pathlib.Path:
  ends = [f'{mark}idx{RANKS[kind]}-ubyte' for mark in '-.']
  names = [f'{split}-{kind}{end}{gz}' for end in ends for gz in ('', '.gz')]
  for name in names:
    if (folder / name).is_file():
      return folder / name
  raise bad_input(
    'idx_files',
    got=f'{folder}, which has no {names[0]}',
    expected='a folder with the four files of the set',
    choices=names,
    cause='the folder above that of the files, or files of other names',
  )


def _read(file: pathlib.Path) -> np.ndarray:
  try:
    return read_idx(file)
  except (ValueError, OSError, EOFError, zlib.error) as error:
    raise bad_input(
      'idx_files',
      got=f'{file}: {error}',
      expected='an IDX file of bytes, gzipped or not',
      cause='a copy that was cut short, or a file of another format',
    ) from error


def _refusal(got: str, shape: Shape) -> BadInput:
  height, width, _ = shape.image_shape
  return bad_input(
    'idx_files',
    got=got,
    expected=f'images of {height}x{width} bytes, and for each a label below '
    f'{shape.num_classes}',
    cause='the files of another set, or of two sets in one folder',
  )
