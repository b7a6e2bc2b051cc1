"""Inputs that are not images: floats of any shape, and whole numbers."""

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import load_dataset, peek, peek_dtype

P = 12
Y = np.arange(P) % 3
SENSOR = np.random.default_rng(0).normal(size=(P, 7, 2))
TOKENS = np.arange(P * 5).reshape(P, 5)
SPLIT = np.where(np.arange(P) < 8, 'train', 'test')


def load(path, **arrays):
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
  dataset = load(place, inputs=inputs, split=SPLIT)
  x = np.concatenate([dataset.train.x, dataset.test.x])
  assert x.dtype == dtype and len(dataset.train.x) == 8
  np.testing.assert_array_equal(x, inputs.astype(dtype))
  assert peek('npz', str(place)) == (inputs.shape[1:], 3)
  assert peek_dtype('npz', str(place)) == dtype


REFUSED = {
  'objects': (np.array([[0], 'x'] * 6, object), 'with inputs object[12]'),
  'words': (np.array([['a', 'b']] * P), 'with inputs text[12, 2]'),
  'one axis': (SENSOR[:, 0, 0], 'with inputs float64[12]'),
  'no axis left': (SENSOR[:, :0], 'with inputs float64[12, 0, 2]'),
  'truth': (SENSOR > 0, 'with inputs bool[12, 7, 2]'),
  'NaN': (np.where(SENSOR > 2, np.nan, SENSOR), 'of them NaN or infinite'),
  'hashes': (TOKENS * 2**40, 'whole numbers that 32 bits hold'),
  'fewer': (SENSOR[1:], 'with labels int64[12], expected labels [11]'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_sentence_for(tmp_path, case):
  inputs, words = REFUSED[case]
  message = refused(lambda: load(tmp_path / 'own.npz', inputs=inputs))
  assert message.startswith('data_dir: got ')
  assert words in message.replace("'", '')


def test_images_and_inputs_sentence(tmp_path):
  both = {'inputs': TOKENS, 'images': np.zeros((P, 4, 4), np.uint8)}
  message = refused(lambda: load(tmp_path / 'own.npz', **both))
  assert 'with an unknown images' in message
  assert 'both `images` and `inputs`' in message


def test_files_of_one_folder_with_other_inputs_sentence(tmp_path):
  np.savez(tmp_path / 'a.npz', inputs=TOKENS, labels=Y)
  np.savez(tmp_path / 'b.npz', inputs=TOKENS + 0.5, labels=Y)
  message = refused(peek, 'npz', str(tmp_path))
  assert 'b.npz with inputs (5,) float32' in message
  assert 'those of a.npz: inputs (5,) int32' in message
