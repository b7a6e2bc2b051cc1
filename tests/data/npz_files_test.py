"""One's own arrays: a file, a folder of files, and what is refused."""

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import (
  is_available,
  load_dataset,
  npz_files,
  peek,
  peek_dtype,
)
from fedjax_pfl.data.images import digest

P = 12
X = np.random.default_rng(0).integers(0, 256, (P, 4, 5, 3), np.uint8)
Y = np.arange(P) % 3
CLIENTS = np.arange(P) % 4
SPLIT = np.where(np.arange(P) < 8, 'train', 'test')
ARRAYS = {'images': X, 'labels': Y}


def store(path, **arrays):
  np.savez(path, **arrays)
  return str(path)


@pytest.fixture
def file(tmp_path):
  return tmp_path / 'own.npz'


def test_a_file_with_clients_and_a_split(file):
  place = store(file, **ARRAYS, split=SPLIT, clients=CLIENTS)
  dataset = load_dataset('npz', data_dir=place)
  is_test = SPLIT == 'test'
  for images, own in ((dataset.train, ~is_test), (dataset.test, is_test)):
    np.testing.assert_array_equal(images.x, X[own])
    np.testing.assert_array_equal(images.y, Y[own])
  for owners, own in zip(dataset.clients, (~is_test, is_test), strict=True):
    np.testing.assert_array_equal(owners, CLIENTS[own])
  assert (dataset.num_classes, dataset.name) == (3, 'npz')
  assert dataset.fingerprint == digest(*dataset.train, *dataset.test)
  assert peek('npz', place) == ((4, 5, 3), 3)
  assert is_available('npz', place)


def test_the_least_that_a_file_holds(file):
  """Grey images of small integers, compressed; no split and no clients."""
  np.savez_compressed(file, images=X[..., 0], labels=Y.astype(np.uint8))
  dataset = load_dataset('npz', data_dir=str(file))
  assert dataset.train.x.shape == (P, 4, 5, 1)
  assert dataset.train.y.dtype == np.int32
  assert dataset.test.x.shape == (0, 4, 5, 1) and len(dataset.test.y) == 0
  assert dataset.clients is None
  assert peek_dtype('npz', str(file)) == peek_dtype('cifar10') == 'uint8'
  assert peek('npz', str(file)) == ((4, 5, 1), 3)


def test_a_folder_has_a_client_in_every_file_by_name(tmp_path):
  for name, rows in (('b', slice(4, 12)), ('a', slice(4))):
    store(
      tmp_path / f'{name}.npz', images=X[rows], labels=Y[rows], num_classes=9
    )
  dataset = load_dataset('npz', data_dir=str(tmp_path))
  np.testing.assert_array_equal(dataset.train.x, X)
  np.testing.assert_array_equal(dataset.clients[0], [0] * 4 + [1] * 8)
  assert peek('npz', str(tmp_path)) == ((4, 5, 3), 9)
  assert len(dataset.clients[1]) == 0


def test_images_are_not_read_to_know_their_shape(file):
  """The bytes of the images are destroyed, the header is not."""
  x = np.random.default_rng(0).integers(0, 256, (P, 90, 90, 3), np.uint8)
  place = store(file, images=x, labels=Y)
  content, own = file.read_bytes(), x.tobytes()
  assert own in content
  file.write_bytes(content.replace(own, bytes(len(own))))
  assert peek('npz', place) == ((90, 90, 3), 3)
  assert 'which cannot be read: Bad CRC' in refused(load_dataset_of, place)


def load_dataset_of(place):
  return load_dataset('npz', data_dir=place)


OBJECTS = np.array([X[0], 'x'], object)
REFUSED = {
  'no labels': ({'labels': None}, 'with no labels'),
  'no images': ({'images': None}, 'with no images'),
  'unknown key': ({'weights': Y}, 'with an unknown weights'),
  'objects': ({'images': OBJECTS}, 'images object[2]'),
  'labels of objects': (
    {'labels': Y.astype(object)},
    'labels of Python objects',
  ),
  'floats': ({'images': X / 255}, 'images float64[12, 4, 5, 3]'),
  'vectors': ({'images': X.reshape(P, -1)}, 'images uint8[12, 60]'),
  'no images at all': ({'images': X[:0]}, 'images uint8[0, 4, 5, 3]'),
  'fewer labels': ({'labels': Y[1:]}, 'labels int64[11]'),
  'names of classes': (
    {'labels': np.array(['cat', 'dog', 'owl'])[Y]},
    'labels text[12]',
  ),
  'a column of pandas': (
    {'clients': np.array(['ann', 'bob', 'cid'], object)[Y]},
    'clients of Python objects',
  ),
  'one-hot': ({'labels': np.eye(3, dtype=int)[Y]}, 'labels int64[12, 3]'),
  'float labels': ({'labels': Y / 1.0}, 'labels float64[12]'),
  'negative label': ({'labels': Y - 1}, 'labels from -1 to 1'),
  'huge label': ({'labels': Y + 2**40}, 'expected labels [12]'),
  'labels from 1': ({'labels': Y + 1}, 'training example of class 0'),
  'a label skipped': ({'labels': Y * 2}, 'training example of class 1'),
  'a class in tests only': (
    {'split': np.where(Y == 2, 'test', 'train')},
    'training example of class 2',
  ),
  'tests only': ({'split': np.full(P, 'test')}, 'of class 0'),
  'too few classes': ({'num_classes': 2}, 'labels up to 2'),
  'no class': ({'num_classes': 0}, 'num_classes int64[]'),
  'class names': ({'num_classes': np.array(['a', 'b'])}, 'num_classes text[2]'),
  'split of numbers': ({'split': Y}, 'split int64[12]'),
  'split of words': ({'split': np.full(P, 'val')}, "the word 'train' or"),
  'short split': ({'split': SPLIT[1:]}, 'split [12]'),
  'fewer clients': ({'clients': CLIENTS[1:]}, 'clients int64[11]'),
  'negative client': ({'clients': CLIENTS - 1}, 'clients from -1 to 2'),
  'client names': ({'clients': CLIENTS.astype(str)}, 'np.unique(names'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_sentence_for(file, case):
  changes, words = REFUSED[case]
  arrays = {**ARRAYS, **changes}
  arrays = {name: a for name, a in arrays.items() if a is not None}
  place = store(file, **arrays)
  message = refused(peek, 'npz', place)
  assert message.startswith('data_dir: got ') and str(file) in message
  assert words in message
  assert refused(load_dataset_of, place) == message


@pytest.mark.parametrize('content', [b'', b'PK\3\4 cut short', b'\x80\x04N.'])
def test_another_file_sentence(file, content):
  file.write_bytes(content)
  assert 'which cannot be read' in refused(peek, 'npz', str(file))


@pytest.mark.parametrize('place', ['', 'absent.npz', 'absent', 'empty'])
def test_no_file_sentence(tmp_path, monkeypatch, place):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'empty').mkdir()
  assert f'got {place!r}, ' in refused(peek, 'npz', place)
  assert not is_available('npz', place)


def test_files_of_one_folder_that_differ_sentence(tmp_path):
  store(tmp_path / 'a.npz', **ARRAYS)
  for arrays in ({**ARRAYS, 'images': X[:, 1:]}, {**ARRAYS, 'num_classes': 3}):
    store(tmp_path / 'b.npz', **arrays)
    message = refused(npz_files.load_npz, str(tmp_path))
    assert 'b.npz with images' in message and 'those of a.npz' in message


def test_clients_in_a_file_of_a_folder_sentence(tmp_path):
  store(tmp_path / 'a.npz', **ARRAYS, clients=CLIENTS)
  message = refused(npz_files.peek_npz, str(tmp_path))
  assert 'an unknown clients' in message and 'every file is a client' in message


# ---- inputs that are not images: floats of any shape, and whole numbers

SENSOR = np.random.default_rng(0).normal(size=(P, 7, 2))
TOKENS = np.arange(P * 5).reshape(P, 5)


def load_inputs(path, **arrays):
  np.savez(path, labels=Y, **arrays)
  return load_dataset('npz', data_dir=str(path))


@pytest.mark.parametrize(
  ('inputs', 'dtype'),
  [
    (SENSOR, 'float32'),
    (SENSOR.astype(np.float16)[:, 0], 'float32'),
    (TOKENS, 'int32'),
    (TOKENS.astype(np.uint8), 'int32'),  # bytes are no pixels here
    (TOKENS[:, None, :, None] - 9, 'int32'),
  ],
)
def test_inputs_keep_shape_and_values(tmp_path, inputs, dtype):
  place = tmp_path / 'own.npz'
  dataset = load_inputs(place, inputs=inputs, split=SPLIT)
  x = np.concatenate([dataset.train.x, dataset.test.x])
  assert x.dtype == dtype and len(dataset.train.x) == 8
  np.testing.assert_array_equal(x, inputs.astype(dtype))
  assert peek('npz', str(place)) == (inputs.shape[1:], 3)
  assert peek_dtype('npz', str(place)) == dtype


REFUSED_INPUTS = {
  'objects': (np.array([[0], 'x'] * 6, object), 'with inputs object[12]'),
  'words': (np.array([['a', 'b']] * P), 'with inputs text[12, 2]'),
  'one axis': (SENSOR[:, 0, 0], 'with inputs float64[12]'),
  'no axis left': (SENSOR[:, :0], 'with inputs float64[12, 0, 2]'),
  'truth': (SENSOR > 0, 'with inputs bool[12, 7, 2]'),
  'NaN': (np.where(SENSOR > 2, np.nan, SENSOR), 'of them NaN or infinite'),
  'hashes': (TOKENS * 2**40, 'whole numbers that 32 bits hold'),
  'fewer': (SENSOR[1:], 'with labels int64[12], expected labels [11]'),
}


@pytest.mark.parametrize('case', REFUSED_INPUTS)
def test_sentence_for_inputs(tmp_path, case):
  inputs, words = REFUSED_INPUTS[case]
  message = refused(lambda: load_inputs(tmp_path / 'own.npz', inputs=inputs))
  assert message.startswith('data_dir: got ')
  assert words in message.replace("'", '')


def test_images_and_inputs_sentence(tmp_path):
  both = {'inputs': TOKENS, 'images': np.zeros((P, 4, 4), np.uint8)}
  message = refused(lambda: load_inputs(tmp_path / 'own.npz', **both))
  assert 'with an unknown images' in message
  assert 'both `images` and `inputs`' in message


def test_files_of_one_folder_with_other_inputs_sentence(tmp_path):
  np.savez(tmp_path / 'a.npz', inputs=TOKENS, labels=Y)
  np.savez(tmp_path / 'b.npz', inputs=TOKENS + 0.5, labels=Y)
  message = refused(peek, 'npz', str(tmp_path))
  assert 'b.npz with inputs (5,) float32' in message
  assert 'those of a.npz: inputs (5,) int32' in message
