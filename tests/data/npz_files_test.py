"""One's own arrays: what a file holds, and what is refused."""

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import npz_files
from fedjax_pfl.data.client_data import stack_clients
from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.images import Shape, digest

P = 12
X = np.random.default_rng(0).integers(0, 256, (P, 4, 5, 3), np.uint8)
Y = np.arange(P) % 3
CLIENTS = np.arange(P) % 4
SPLIT = np.where(np.arange(P) < 8, 'train', 'test')
SENSOR = np.random.default_rng(0).normal(size=(P, 7, 2))
TOKENS = np.arange(P * 5).reshape(P, 5)


def store(path, **arrays):
  """Write X, Y and other arrays; one that is None is left out."""
  arrays = {'images': X, 'labels': Y, **arrays}
  np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
  return str(path)


def load(place):
  return load_dataset('npz', data_dir=place)


@pytest.fixture
def file(tmp_path):
  return tmp_path / 'own.npz'


def test_a_file_with_clients_and_a_split(file):
  place = store(file, split=SPLIT, clients=CLIENTS)
  dataset = load(place)
  is_test = SPLIT == 'test'
  for k, own in enumerate((~is_test, is_test)):
    np.testing.assert_array_equal(dataset[1 + k].x, X[own])
    np.testing.assert_array_equal(dataset[1 + k].y, Y[own])
    np.testing.assert_array_equal(dataset.clients[k], CLIENTS[own])
  assert (dataset.num_classes, dataset.name) == (3, 'npz')
  assert dataset.fingerprint == digest(*dataset.train, *dataset.test)
  other = load(store(file.parent / 'b.npz', split=SPLIT, num_classes=9))
  assert other.fingerprint != dataset.fingerprint
  number = 1 + CLIENTS.max()
  assert peek('npz', place) == Shape((4, 5, 3), 3, num_clients=number)


@pytest.mark.parametrize('images', [X, np.asfortranarray(X)])
def test_examples_are_in_memory_once(file, images, monkeypatch):
  """They are read a row at a time, and a CPU's device has no copy of them."""
  monkeypatch.setattr(npz_files, 'BLOCK', X[0].nbytes)
  split = SPLIT[np.random.default_rng(1).permutation(P)]
  dataset = load(store(file, images=images, split=split))
  for name, images in zip(('train', 'test'), dataset[1:3], strict=True):
    np.testing.assert_array_equal(images.x, X[split == name])
    pool = stack_clients(images, [np.arange(2)]).x
    assert pool.unsafe_buffer_pointer() == images.x.ctypes.data


def test_the_least_that_a_file_holds(file):
  """Grey images of small integers, compressed; no split and no clients."""
  np.savez_compressed(file, images=X[..., 0], labels=Y.astype(np.uint8))
  dataset = load(str(file))
  assert dataset.train.x.shape == (P, 4, 5, 1)
  assert dataset.train.y.dtype == np.int32
  assert dataset.test.x.shape == (0, 4, 5, 1) and len(dataset.test.y) == 0
  assert dataset.clients is None
  assert peek('npz', str(file)) == Shape((4, 5, 1), 3, has_tests=False)


def test_images_are_not_read_to_know_their_shape(file):
  """The bytes of the images are destroyed, the header is not."""
  x = np.random.default_rng(0).integers(0, 256, (P, 90, 90, 3), np.uint8)
  place = store(file, images=x)
  content, own = file.read_bytes(), x.tobytes()
  assert own in content
  file.write_bytes(content.replace(own, bytes(len(own))))
  assert peek('npz', place).image_shape == (90, 90, 3)
  assert 'which cannot be read: Bad CRC' in refused(load, place)


@pytest.mark.parametrize(
  ('inputs', 'dtype'),
  [
    (SENSOR, 'float32'),
    (TOKENS.astype(np.uint8), 'int32'),  # bytes are no pixels here
    (TOKENS[:, None, :, None] - 9, 'int32'),
  ],
)
def test_inputs_keep_shape_and_values(file, inputs, dtype):
  place = store(file, images=None, inputs=inputs, split=SPLIT)
  dataset = load(place)
  x = np.concatenate([dataset.train.x, dataset.test.x])
  assert x.dtype == dtype and len(dataset.train.x) == 8
  np.testing.assert_array_equal(x, inputs.astype(dtype))
  assert peek('npz', place) == Shape(inputs.shape[1:], 3, dtype)


def test_tokens_may_have_labels_each(file):
  labels = np.where(TOKENS > 2, -1, TOKENS)
  place = store(file, images=None, inputs=TOKENS, labels=labels, num_classes=9)
  np.testing.assert_array_equal(load(place).train.y, labels)
  assert peek('npz', place).labels == TOKENS.shape[1:]


# (array, its value, words): an input stands in the place of images.
REFUSED = [
  ('labels', None, 'with no labels'),
  ('images', None, 'with no images'),
  ('weights', Y, 'with an unknown weights'),
  ('images', X / 255, 'images float64[12, 4, 5, 3]'),
  ('images', X[:0], 'images uint8[0, 4, 5, 3]'),
  ('labels', Y[1:], 'labels int64[11]'),
  ('labels', np.eye(3, dtype=int)[Y], 'labels int64[12, 3]'),
  ('labels', Y - 1, 'labels from -1 to 1'),
  ('labels', Y + 1, 'training example of class 0'),
  ('num_classes', 2, 'labels up to 2'),
  ('num_classes', 2 * 10**9, 'num_classes as one whole number from 1 to 1,000'),
  ('split', Y, 'split int64[12]'),
  ('split', np.full(P, 'val'), "the word 'train' or"),
  ('clients', CLIENTS.astype(float), 'a whole number from 0 or a name'),
  ('inputs', SENSOR[:, 0, 0], 'inputs float64[12]'),
  ('inputs', SENSOR * 1e300, 'of them NaN, infinite or too large'),
  ('inputs', TOKENS * 2**40, 'whole numbers that 32 bits hold'),
]


@pytest.mark.parametrize(('name', 'value', 'words'), REFUSED)
def test_sentences(file, name, value, words):
  arrays = {'images': None} if name == 'inputs' else {}
  place = store(file, **{**arrays, name: value})
  message = refused(load, place)
  assert message.startswith('data_dir: got ') and str(file) in message
  assert words in message.replace("\\'", "'")
  if 'of them NaN' not in message:  # that takes the values themselves
    assert refused(peek, 'npz', place) == message


@pytest.mark.parametrize('content', [b'', b'PK\3\4 cut short', b'\x80\x04N.'])
def test_another_file_sentence(file, content):
  file.write_bytes(content)
  assert 'which cannot be read' in refused(peek, 'npz', str(file))


@pytest.mark.parametrize('place', ['', 'absent.npz', 'empty'])
def test_no_file_sentence(tmp_path, monkeypatch, place):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'empty').mkdir()
  assert f'got {place!r}, ' in refused(peek, 'npz', place)
