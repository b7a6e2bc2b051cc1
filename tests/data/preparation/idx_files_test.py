"""IDX files of a folder: the same set as from the download, or a sentence."""

import functools
import gzip
import struct

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.preparation.formats import tfds_order
from fedjax_pfl.data.preparation.prepare import prepare

IMAGES = 'train-images-idx3-ubyte'


def write_idx(path, array):
  content = struct.pack(f'>4B{array.ndim}I', 0, 0, 8, array.ndim, *array.shape)
  content += array.astype(np.uint8).tobytes()
  path.write_bytes(gzip.compress(content) if path.suffix else content)


def write_files(folder):
  folder.mkdir()
  rng, splits = np.random.default_rng(0), []
  for split, size in (('train', 30), ('t10k', 12)):
    x, y = rng.integers(0, 256, (size, 28, 28)), rng.integers(0, 10, size)
    write_idx(folder / f'{split}-images-idx3-ubyte', x)
    write_idx(folder / f'{split}-labels-idx1-ubyte.gz', y)
    splits.append((x, y))
  return splits


def test_files_of_a_folder_gzipped_or_not_are_the_set(tmp_path):
  files, data = tmp_path / 'files', str(tmp_path / 'data')
  splits = write_files(files)
  prepare(['mnist'], data, str, idx_files=files)
  dataset = load_dataset('mnist', data_dir=data)
  for name, (x, y) in zip(('train', 'test'), splits, strict=True):
    order = tfds_order(name, len(y))
    np.testing.assert_array_equal(getattr(dataset, name).x[..., 0], x[order])
    np.testing.assert_array_equal(getattr(dataset, name).y, y[order])


def cut(path):
  path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
  ('name', 'damage', 'words'),
  [
    (IMAGES, lambda path: path.write_bytes(b'PK\3\4'), '50 4b 03 04'),
    (IMAGES, cut, 'holds 23,519 bytes, by its header 30x28x28'),
    ('t10k-labels-idx1-ubyte.gz', cut, 'a copy that was cut short'),
    (IMAGES, lambda path: path.unlink(), 'has no train-images'),
    (IMAGES, lambda path: write_idx(path, np.ones((30, 8, 8))), '30x8x8 and'),
    (
      't10k-labels-idx1-ubyte.gz',
      lambda path: write_idx(path, np.full(12, 10)),
      'with the label 10',
    ),
  ],
)
def test_other_files_are_refused(tmp_path, name, damage, words):
  write_files(tmp_path / 'files')
  damage(tmp_path / 'files' / name)
  of_folder = functools.partial(prepare, idx_files=tmp_path / 'files')
  message = refused(of_folder, ['mnist'], str(tmp_path / 'data'), str)
  assert message.startswith('idx_files: got ') and words in message
  assert not (tmp_path / 'data').exists()
  message = refused(of_folder, ['cifar10'])
  assert 'Choices: mnist, fashion_mnist.' in message
