import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from helpers import refused
from PIL import Image

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.images import Shape


def save(file, x):
  file.parent.mkdir(parents=True, exist_ok=True)
  with file.open('wb') as stream:  # the suffix may differ from the format
    Image.fromarray(x).save(stream, 'PNG')
  return x


def picture(seed, shape=(6, 5, 3)):
  rng = np.random.default_rng(seed)
  return rng.integers(0, 256, shape, dtype=np.uint8)


def generic(root, shape=(6, 5, 3)):
  for k, name in enumerate(['cat', 'dog']):
    for i in range(3):
      save(root / 'train' / name / f'{i}.png', picture(10 * k + i, shape))
    save(root / 'test' / name / 'z.png', picture(100 + k, shape))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv('FEDJAX_PFL_CACHE', str(tmp_path / 'cache'))


def load(root):
  return load_dataset('folder', data_dir=str(root))


def test_generic_layout(tmp_path, monkeypatch):
  root = tmp_path / 'pets'
  generic(root)
  dataset = load(root)
  assert dataset.train.x.shape == (6, 6, 5, 3)
  assert dataset.train.y.tolist() == [0, 0, 0, 1, 1, 1]
  assert dataset.test.y.tolist() == [0, 1]
  np.testing.assert_array_equal(dataset.train.x[4], picture(11))
  np.testing.assert_array_equal(dataset.test.x[1], picture(101))
  assert peek('folder', str(root)) == Shape((6, 5, 3), 2)
  heard = []
  monkeypatch.setenv('FEDJAX_PFL_CACHE', str(tmp_path / 'cold'))
  more = {'data_dir': str(root), 'log_fn': heard.append}
  for _ in range(2):  # decoded once, then from the cache
    again = load_dataset('folder', **more)
    assert again.fingerprint == dataset.fingerprint
  assert len(heard) == 1 and str(root) in heard[0]
  shutil.rmtree(root / 'test')
  for _ in range(2):
    assert load(root).test.x.shape == (0, 6, 5, 3)


def test_a_relative_folder_is_that_of_this_directory(tmp_path, monkeypatch):
  for place in ('a', 'b'):
    root = tmp_path / place / 'pets'
    generic(root)
    save(root / DOG, np.full((6, 5, 3), ord(place), np.uint8))
    for file in root.glob('*/*/*'):
      file.write_bytes(file.read_bytes().ljust(999, b' '))
      os.utime(file, (0, 0))
    monkeypatch.chdir(root.parent)
    found = load_dataset('folder', data_dir='pets')
    assert found.train.x[4].max() == ord(place)


def test_grey_folders_have_one_channel_and_mixed_ones_three(tmp_path):
  generic(tmp_path / 'grey', (6, 5))
  assert load(tmp_path / 'grey').train.x.shape == (6, 6, 5, 1)
  generic(tmp_path / 'mixed')
  grey = save(
    tmp_path / 'mixed' / 'train' / 'dog' / '1.png', picture(0, (6, 5))
  )
  x = load(tmp_path / 'mixed').train.x[4]
  repeated = np.repeat(grey[:, :, None], 3, 2)
  np.testing.assert_array_equal(x, repeated)
  later = tmp_path / 'grey' / 'train' / 'dog' / '2.png'
  save(later, repeated)
  assert load(tmp_path / 'grey').train.x.shape == (6, 6, 5, 1)
  save(later, picture(0))
  assert 'a first one that is grey' in refused(load, tmp_path / 'grey')


def test_folders_that_are_no_classes(tmp_path):
  """An empty one, and copies of images that programs leave behind."""
  root = tmp_path / 'pets'
  generic(root)
  want = load(root)
  for split in ('train', 'test'):
    (root / split / 'bird').mkdir()
    for name in ('.ipynb_checkpoints', '__MACOSX'):
      save(root / split / name / 'copy.png', picture(0))
    (root / split / 'cat' / '._0.png').write_bytes(b'left by macOS')
  assert peek('folder', str(root)).num_classes == 2
  found = load(root)
  assert found.fingerprint == want.fingerprint and found.num_classes == 2


def spoil(root, make):
  (root / DOG).unlink()
  make(root / DOG)


def save_deep_colours(file):
  """Write a PNG of 16 bits a channel, which Pillow reads but does not write."""

  def chunk(kind, content):
    checksum = struct.pack('>I', zlib.crc32(kind + content))
    return struct.pack('>I', len(content)) + kind + content + checksum

  header = struct.pack('>IIBBBBB', 5, 6, 16, 2, 0, 0, 0)
  rows = zlib.compress(bytes(6 * (1 + 5 * 3 * 2)))
  parts = chunk(b'IHDR', header), chunk(b'IDAT', rows), chunk(b'IEND', b'')
  file.write_bytes(b'\x89PNG\r\n\x1a\n' + b''.join(parts))


def spoil_split(root):
  for file in root.glob('test/*/*.png'):
    file.unlink()


DOG = 'train/dog/1.png'
DEEP = np.arange(30, dtype=np.uint16).reshape(6, 5) * 1000


@pytest.mark.parametrize(
  ('spoil', 'message'),
  [
    (
      lambda root: save(root / DOG, picture(0, (9, 5, 3))),
      r'an image of shape \(9, 5, 3\).*1.png',
    ),
    (
      lambda root: (root / DOG).write_bytes(b'\x89PNG and no more'),
      '1.png, which does not decode',
    ),
    (
      lambda root: save(root / DOG, DEEP),
      '1.png, which .* mode is I;16.* expected .* 8 bits a channel',
    ),
    (
      lambda root: spoil(root, save_deep_colours),
      '1.png, which .* mode is RGB, of 16 bits or more',
    ),
    (
      lambda root: spoil(root, os.mkfifo),
      '1.png, which does not decode: it is no file',
    ),
    (
      lambda root: spoil(root, lambda file: file.symlink_to(file)),
      '1.png, a link that leads to no file',
    ),
    (
      lambda root: save(root / 'test/horse/z.png', picture(0)),
      r"images have classes that train lacks: \['horse'\]",
    ),
    (spoil_split, 'no labelled images for test'),
    (lambda root: (root / 'train').rename(root / 'x'), 'without train/'),
  ],
)
def test_sentences(tmp_path, spoil, message):
  root = tmp_path / 'pets'
  generic(root)
  spoil(root)
  with pytest.raises(BadInput, match=message):
    load(root)
