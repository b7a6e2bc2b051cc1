"""From archives of the official formats to the data sets of runs."""

import numpy as np
import pytest
import small_archives
from helpers import refused

from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.images import digest
from fedjax_pfl.data.preparation.download import ARCHIVES
from fedjax_pfl.data.preparation.formats import tfds_order
from fedjax_pfl.data.preparation.prepare import SHORT_NAMES, prepare

# Their rows have numbers, or names.
RELEASED = {'cifar10', 'cifar100', 'svhn_cropped', 'tiny_imagenet'}
IMAGE_SETS = [name for name in ARCHIVES if name != 'shakespeare']
SHORT = {full: short for short, full in SHORT_NAMES.items()}


def prepared(tmp_path, name):
  """Prepare a small set; return its images and the sentences."""
  official, images = small_archives.write_archives(tmp_path / 'net', [name])
  heard = []
  short = SHORT.get(name, name)
  prepare([short], str(tmp_path / 'data'), heard.append, official)
  return images[name], heard


def load(tmp_path, name):
  return load_dataset(name, data_dir=str(tmp_path / 'data'))


@pytest.mark.parametrize('name', IMAGE_SETS)
def test_runs_read_what_was_prepared(tmp_path, name):
  splits, heard = prepared(tmp_path, name)
  dataset = load(tmp_path, name)
  for split, got, (x, y) in zip(
    ('train', 'test'), (dataset.train, dataset.test), splits, strict=True
  ):
    rows = np.arange(len(y)) if name in RELEASED else tfds_order(split, len(y))
    np.testing.assert_array_equal(got.x, x[rows])
    np.testing.assert_array_equal(got.y, y[rows])
    assert (got.x.dtype, got.y.dtype) == (np.uint8, np.int32)
  assert dataset.fingerprint == digest(*dataset.train, *dataset.test)
  assert any(dataset.fingerprint in line for line in heard)
  assert f'--config.dataset={name} ' in heard[-1]
  assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize('damage', ['flip', 'cut'])
def test_damaged_arrays_are_written_again(tmp_path, damage):
  prepared(tmp_path, 'mnist')
  want = load(tmp_path, 'mnist').fingerprint
  for file in (tmp_path / 'data' / 'downloads').iterdir():
    file.unlink()  # they are not needed any more
  _, heard = prepared(tmp_path, 'mnist')
  assert 'is there already' in heard[0]
  assert not [*(tmp_path / 'data' / 'downloads').iterdir()]
  file = next((tmp_path / 'data' / 'mnist').glob('*/train_x.npy'))
  content = file.read_bytes()
  flipped = content[:-1] + bytes([content[-1] ^ 1])
  file.write_bytes(flipped if damage == 'flip' else content[:-100])
  _, heard = prepared(tmp_path, 'mnist')
  assert 'damaged' in heard[0]
  dataset = load(tmp_path, 'mnist')
  assert digest(*dataset.train, *dataset.test) == want
  (file.parent / 'meta.json').write_text('{')
  message = refused(load, tmp_path, 'mnist')
  assert 'mnist, and while reading' in message
  assert 'delete the folder and prepare' in message


def test_an_unknown_name_is_refused_before_anything_is_fetched(tmp_path):
  message = refused(prepare, ['mnist', 'svnh'], str(tmp_path / 'data'))
  assert 'did you mean svhn?' in message
  assert not (tmp_path / 'data').exists()


@pytest.mark.parametrize(
  ('split', 'want'), [('train', '1c33f3bb1b03'), ('test', '692571c056e5')]
)
def test_the_order_is_that_of_tfds(split, want):
  """Stored from `tensorflow_datasets.core.hashing` 4.9.10."""
  assert digest(tfds_order(split, 300)) == want
