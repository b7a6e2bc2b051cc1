"""Folders of PFLlib and HtFLlib, read as they are and written.

The folders of digits in both repositories were read as well: 20 clients, their
counts of every class those of config.json, one fingerprint, 947d3c05f55e.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import partition_files
from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.images import Images, Shape, make_dataset
from fedjax_pfl.data.transforms import make_transforms

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (3, 5, 2, 4, 3), np.uint8)  # of three clients
FLOATS = (BYTES.astype(np.float32) / 255 - 0.5) / 0.5  # ToTensor, Normalize
STORED = FLOATS.transpose(0, 1, 4, 2, 3)
SIZES = {'train': (5, 4, 2), 'test': (1, 1, 3)}


def put(file, x, y):
  file.parent.mkdir(parents=True, exist_ok=True)
  with file.open('wb') as stream:
    np.savez_compressed(stream, data={'x': x, 'y': y})


def make(root, examples=STORED, **config):
  """Write a folder as save_file of dataset_utils.py does."""
  for split, sizes in SIZES.items():
    for client, size in enumerate(sizes):
      y = np.arange(size, dtype=np.int64) % 3
      put(root / split / f'{client}.npz', examples[client][:size], y)
  if config:
    (root / 'config.json').write_text(json.dumps(config))
  return str(root)


def load(place):
  return load_dataset('pfllib', data_dir=place)


def test_images_are_bytes_whose_inputs_are_those_of_the_file(tmp_path):
  place = make(tmp_path, num_clients=3, num_classes=4)
  dataset = load(place)
  assert peek('pfllib', place) == Shape((2, 4, 3), 4, num_clients=3)
  np.testing.assert_array_equal(dataset.train.x[5:9], BYTES[1][:4])
  clients = [np.bincount(one).tolist() for one in dataset.clients]
  assert clients == [[5, 4, 2], [1, 1, 3]] and dataset.num_classes == 4
  _, normalise = make_transforms('pfllib', (2, 4, 3))
  inputs = normalise(dataset.test.x[2:], None)
  np.testing.assert_allclose(inputs, FLOATS[2][:3], atol=1e-6)
  known = Shape((2, 4, 3), 3, num_clients=3)
  assert peek('pfllib', make(tmp_path / 'plain')) == known


def test_inputs_that_are_no_images_stay_numbers(tmp_path):
  signals = RNG.normal(size=(3, 5, 9, 1, 6))  # of HAR
  dataset = load(make(tmp_path / 'har', signals))
  moved = signals[0].transpose(0, 2, 3, 1).astype(np.float32)
  np.testing.assert_array_equal(dataset.train.x[:5], moved)
  letters = RNG.integers(-1, 80, (3, 5, 7))  # -1: of no known letter
  assert peek('pfllib', make(tmp_path / 'plays', letters)).dtype == 'int32'
  texts = [
    np.array([([*map(int, text)], 7) for text in own], object)
    for own in letters
  ]
  dataset = load(make(tmp_path / 'news', texts))
  np.testing.assert_array_equal(dataset.train.x[5:9], letters[1][:4])
  texts[0][0, 1] = 3
  message = refused(load, make(tmp_path / 'short', texts))
  assert 'texts of 7 tokens with other lengths' in message


def test_what_is_written_is_read(tmp_path):
  splits = [Images(BYTES[k], np.arange(5) % 3) for k in (0, 1)]
  dataset = make_dataset('any', *splits, num_classes=3)
  rows = {
    'train': [np.array([4, 0]), np.arange(1, 4)],
    'test': [np.arange(2), np.array([3])],
  }
  out = tmp_path / 'out'
  assert partition_files.write('pfllib', out, dataset, rows, 'same') == out
  again = load(str(tmp_path / 'out'))
  for client in (0, 1):
    for split in (0, 1):
      own = rows[('train', 'test')[split]][client]
      is_own = again.clients[split] == client
      np.testing.assert_array_equal(
        again[1 + split].x[is_own], splits[split].x[own]
      )
      assert again[1 + split].y[is_own].tolist() == (own % 3).tolist()
  content = np.load(tmp_path / 'out/train/0.npz', allow_pickle=True)['data']
  x, y = content.item().values()  # as PFLlib's read_data takes it
  assert x.dtype == np.float32 and x.shape == (2, 3, 2, 4) and y.dtype == int
  config = json.loads((tmp_path / 'out/config.json').read_text())
  assert config['Size of samples for labels in clients'][0] == [[0, 2], [1, 2]]


def on(name, how):
  """Return what does this to a file of a folder."""
  return lambda folder: how(folder / name)


def config(text):
  return on('config.json', lambda file: file.write_text(text))


def stored(x, y):
  return on('test/2.npz', lambda file: put(file, x, y))


def cut(file):
  file.write_bytes(file.read_bytes()[:200])


def no_file(file):
  file.unlink()
  os.mkfifo(file)


SPOILT = {
  'without 1.npz, expected a file of each': on('test/1.npz', Path.unlink),
  'without 3.npz': config('{"num_clients": 4, "num_classes": 3}'),
  'labels from 0 to 2, expected labels below 2': config('{"num_classes": 2}'),
  'config.json, which does not read': config('{"num_classes": '),
  'num_classes [0, -1]': config('{"num_classes": -1}'),
  'files [': on('train/1.npz', lambda f: f.rename(f.with_name('one.npz'))),
  '2.npz, which does not read': on('train/2.npz', cut),
  '2.npz, which does not read: it is no file': on('train/2.npz', no_file),
  'with examples uint8[2, 4, 1]': stored(STORED[0][:, :1], np.arange(5)),
  'with int64[4] labels of 5 examples': stored(STORED[0], np.arange(4)),
  'labels from -1 to 3': stored(STORED[0], np.arange(-1, 4)),
  'and no dict': on('train/0.npz', lambda f: np.savez(f, data=np.zeros(3))),
}


@pytest.mark.parametrize('words', SPOILT)
def test_a_folder_that_is_refused(tmp_path, words):
  place = make(tmp_path / 'set', num_clients=3)
  SPOILT[words](tmp_path / 'set')
  assert words in refused(load, place).replace("', expected", ', expected')


def test_indices_are_those_of_the_rows(tmp_path):
  dataset = load_dataset('digits')
  rows = {
    'train': [np.arange(3), np.array([9, 7])],
    'test': [np.arange(2), np.arange(5, 6)],
  }
  file = tmp_path / 'a' / 'rows.json'
  partition_files.write('indices', file, dataset, rows, 'split')
  content = json.loads(file.read_text())
  assert content['train'] == [[0, 1, 2], [9, 7]]
  assert content['test_rows_are_of'] == 'train'
  assert content['images'] == dataset.fingerprint
  write = partition_files.write
  message = refused(lambda: write('indices', file, dataset, rows, 'same'))
  assert 'expected a path where nothing is' in message
  more = rows | {'validation': rows['test']}
  new = tmp_path / 'new'
  message = refused(lambda: write('pfllib', new, dataset, more, 'same'))
  assert "got 'pfllib for examples for validation'" in message
  assert "got 'csv'" in refused(
    lambda: write('csv', new, dataset, rows, 'same')
  )
  assert not new.exists()
