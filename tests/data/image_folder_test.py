import os
import re
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from helpers import refused
from PIL import Image

from experiments.commandline import read_settings
from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.images import Shape
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build_data import build_data
from fedjax_pfl.training.outline import sketch

DOG = 'train/dog/1.png'


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
  words = '{train,test}/CLASS: 2 classes, 8 images, 2 for testing.'
  assert [line.startswith('Found') for line in heard] == [1, 0, 1]
  assert heard[0] == heard[2] == f'Found in {root}/{words}'
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
  grey = save(tmp_path / 'mixed' / DOG, picture(0, (6, 5)))
  repeated = np.repeat(grey[:, :, None], 3, 2)
  np.testing.assert_array_equal(load(tmp_path / 'mixed').train.x[4], repeated)
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


def save_deep_colours(file):
  """Write a PNG of 16 bits a channel, which Pillow reads but does not write."""

  def chunk(kind, content):
    checksum = struct.pack('>I', zlib.crc32(kind + content))
    return struct.pack('>I', len(content)) + kind + content + checksum

  header = struct.pack('>IIBBBBB', 5, 6, 16, 2, 0, 0, 0)
  rows = zlib.compress(bytes(6 * (1 + 5 * 3 * 2)))
  parts = chunk(b'IHDR', header), chunk(b'IDAT', rows), chunk(b'IEND', b'')
  file.write_bytes(b'\x89PNG\r\n\x1a\n' + b''.join(parts))


def put(save, *args, file=DOG):
  """Return what saves this in the place of a file of a folder."""

  def replace(root):
    (root / file).unlink(missing_ok=True)
    save(root / file, *args)

  return replace


def without(*names):
  """Return what removes all files or folders of these names from a folder."""
  return lambda root: [
    shutil.rmtree(path) for name in names for path in root.glob(name)
  ]


DEEP = np.arange(30, dtype=np.uint16).reshape(6, 5) * 1000
SPOILT = {
  'an image of shape (9, 5, 3)': put(save, picture(0, (9, 5, 3))),
  '1.png, which does not decode': put(Path.write_bytes, b'\x89PNG and no more'),
  'its mode is I;16': put(save, DEEP),
  'its mode is RGB, of 16 bits or more': put(save_deep_colours),
  '1.png, which does not decode: it is no file': put(os.mkfifo),
  '1.png, a link that leads to no file': put(lambda f: f.symlink_to(f)),
  "have classes that train lacks: ['horse']": put(
    save, picture(0), file='test/horse/z.png'
  ),
  "pets, where nothing is', expected": shutil.rmtree,
  'no labelled images for test': without('test/*'),
  'without train/': without('train'),
  'classes that train lacks': without('train/cat'),
  'with images of one class, dog': without('*/cat'),
}


@pytest.mark.parametrize('words', SPOILT)
def test_a_folder_that_is_refused(tmp_path, words):
  root = tmp_path / 'pets'
  generic(root)
  SPOILT[words](root)
  assert words in refused(load, root).replace("\\'", "'")


# ---- clients


def held(root, layout, sizes=(3, 2, 4)):
  """Write images of clients 2, 10 and 1; return what they are."""
  made = []
  for client, size in zip((2, 10, 1), sizes, strict=True):
    for at in range(size):
      split, name = ('test', 'train')[at > 0], f'c{at % 2}'
      place = layout.format(client=f'p{client}', split=split, label=name)
      file = root / place / f'{at}.png'
      save(file, picture(len(made)))
      made.append((file, client, name, split))
  return made


def owners(dataset):
  return [np.bincount(one).tolist() for one in dataset.clients]


def test_a_folder_for_each_client(tmp_path):
  root = tmp_path / 'plain'
  held(root, '{client}/{label}')
  (root / 'notes').mkdir()
  (root / 'p2' / '__MACOSX').mkdir()
  dataset = load(root)
  assert owners(dataset) == [[4, 3, 2], []]  # p1, p2, p10
  np.testing.assert_array_equal(dataset.train.x[0], picture(5))
  known = peek('folder', str(root))
  assert (known.num_clients, known.has_tests) == (3, False)
  split = tmp_path / 'split'
  held(split, '{client}/{split}/{label}')
  assert owners(load(split)) == [[3, 2, 1], [1, 1, 1]]
  known = peek('folder', str(split))
  assert (known.num_clients, known.has_tests) == (3, True)
  save(split / 'p3' / 'c0' / '1.png', picture(0))
  assert 'where p1 has train/, and p3 has not' in refused(load, split)


def test_a_domain_of_one_class_was_unpacked_in_part(tmp_path):
  for domain, labels in {'mnist': '012', 'svhn': '012', 'usps': '1'}.items():
    for split in ('train', 'test'):
      for label in labels:
        save(tmp_path / domain / split / label / '0.png', picture(0))
  words = 'usps/train has one class, 1, and the other domains have 3'
  assert words in refused(load, tmp_path)
  save(tmp_path / 'usps' / 'train' / '2' / '0.png', picture(0))
  assert len(load(tmp_path).train.y) == 8


def test_a_table_of_files(tmp_path):
  table = tmp_path / 'all.csv'
  lines = ['split,label,path,client']
  for file, client, label, split in held(tmp_path, 'files/{client}'):
    lines.append(f'{split},{label},{file.relative_to(tmp_path)},{client}')
  table.write_text('\n'.join(lines))
  dataset = load(table)
  assert owners(dataset) == [[3, 2, 1], [1, 1, 1]]
  np.testing.assert_array_equal(dataset.test.x[1], picture(3))
  for line, words in (
    ('train,c0,absent.png,1', 'line 11 names .*absent.png, which is no file'),
    ('dev,c0,files/p1/0.png,1', "line 11 has the split 'dev'"),
    ('train,,files/p1/0.png,1', 'line 11 has an empty cell'),
    ('train,c0,files/p1/0.png', 'line 11 has an empty cell'),
    ('train,c0,files/p1/0.png,1', r'with 2 rows for .*files/p1/0\.png'),
    (f'train,c0,{"x" * 5000},1', 'which cannot be read.* file name too long'),
    ('test,c9,files/p1/0.png,9', r"classes that train lacks: \['c9'\]"),
  ):
    table.write_text('\n'.join([*lines, line]))
    assert re.search(words, refused(load, table))
  turned = [line.replace('c0', 'c2').replace('c1', 'c0') for line in lines]
  table.write_text('\n'.join(turned).replace('c2', 'c1'))
  again = load(table)  # the same files and numbers, of other classes
  assert again.train.y.tolist() == (1 - dataset.train.y).tolist()
  table.write_bytes(b'path,label\n\xff\xfe,1')
  assert 'which is no text of commas' in refused(load, table)
  table.write_text('file,label\nx,1')
  assert 'with 1 rows of the columns' in refused(load, table)
  table.unlink()
  os.mkfifo(table)
  assert 'without train/' in refused(load, table)


def test_sizes_that_differ_are_scaled_where_asked(tmp_path):
  held(tmp_path, '{client}/{label}')
  save(tmp_path / 'p1' / 'c0' / '0.png', picture(0, (9, 7)))  # grey, too
  assert '--config.image_size=32' in refused(load, tmp_path)
  place = {'data_dir': str(tmp_path), 'image_size': 4}
  dataset = load_dataset('folder', **place)
  assert dataset.train.x.shape == (9, 4, 4, 3)
  assert peek('folder', **place).image_shape == (4, 4, 3)
  want = Image.fromarray(picture(2)).resize((4, 4), Image.Resampling.BILINEAR)
  # Of client p2, who is between p1 with four images and p10.
  np.testing.assert_array_equal(dataset.train.x[5], np.asarray(want))


def test_a_client_who_is_added_is_not_taken_from_the_cache(tmp_path):
  held(tmp_path, '{client}/{label}')
  before = load(tmp_path)
  (tmp_path / 'p1').rename(tmp_path / 'p0')
  (tmp_path / 'p2' / 'c0').rename(tmp_path / 'p2' / 'c1b')
  assert load(tmp_path).num_classes == before.num_classes + 1


def test_the_clients_of_the_data_are_those_of_a_config(tmp_path):
  """And a client without tests keeps a fifth of its images for them."""
  held(tmp_path, '{client}/{label}', (6, 7, 8))
  data_dir = {'data_dir': str(tmp_path)}
  config = read_settings('configs/own_folder.py:fedbabu', data_dir)
  settings = parse_config(config)
  assert settings.data.num_clients == 3
  assert settings.data.test_partition == 'split'
  data = build_data(settings, [].append)
  assert data.splits['train'].count.tolist() == [6, 4, 5]
  assert data.splits['test'].count.tolist() == [2, 2, 2]
  message = refused(parse_config, {**config, 'partition': 'iid'})
  assert message.startswith("num_clients: got '0 with partition=iid'")
  save(tmp_path / 'x' / 'train' / 'a' / '1.png', picture(0))
  save(tmp_path / 'x' / 'train' / 'b' / '1.png', picture(0))
  message = refused(parse_config, {**config, 'data_dir': str(tmp_path / 'x')})
  assert 'data that say who holds an example' in message
  inputs = {**config, 'dataset': 'npz', 'data_dir': str(tmp_path / 'x.npz')}
  arrays = {'inputs': np.zeros((4, 3)), 'labels': [0, 1] * 2}
  np.savez(inputs['data_dir'], **arrays, clients=[0, 0, 1, 1])
  assert parse_config(inputs).data.num_clients == 2
  message = refused(sketch, parse_config(inputs))
  assert message.startswith('image_size: got 32, expected 0 for inputs')
