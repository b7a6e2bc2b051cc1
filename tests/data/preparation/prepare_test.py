"""From archives of the official formats to the data sets of runs."""

import importlib.metadata
import pathlib
import re
import shutil

import numpy as np
import pytest
import small_archives
from helpers import refused

from fedjax_pfl.data import is_available, load_dataset
from fedjax_pfl.data.images import digest
from fedjax_pfl.data.preparation.archives import ARCHIVES, SHORT_NAMES
from fedjax_pfl.data.preparation.formats import tfds_order
from fedjax_pfl.data.preparation.prepare import prepare

RELEASED = {'cifar10', 'cifar100', 'svhn_cropped'}  # tfds sorts by their ids
SHORT = {full: short for short, full in SHORT_NAMES.items()}
every_set_of_arrays = pytest.mark.parametrize(
  'name', sorted({*ARCHIVES} - {'tiny_imagenet'})
)


def prepared(tmp_path, name):
  """Prepare a small set; return its images and the sentences."""
  archives, images = small_archives.write_archives(tmp_path / 'net', [name])
  heard = []
  short = SHORT.get(name, name)
  prepare([short], str(tmp_path / 'data'), heard.append, archives)
  return images[name], heard


def load(tmp_path, name):
  return load_dataset(
    name, data_dir=str(tmp_path / 'data'), cache_dir=str(tmp_path / 'cache')
  )


@every_set_of_arrays
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
  arrays = [*dataset.train, *dataset.test]
  assert dataset.fingerprint == digest(*arrays)
  assert any(dataset.fingerprint in line for line in heard)
  assert f'--config.dataset={name} ' in heard[-1]
  assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize('name', ['cifar10', 'svhn_cropped'])
def test_arrays_are_those_of_tfds(tmp_path, write_prepared, name):
  """tfds stores them in another order, with their numbers in the release."""
  splits, _ = prepared(tmp_path, name)
  write_prepared(
    tmp_path / 'tfds',
    name,
    dict(zip(('train', 'test'), splits, strict=True)),
    ids=True,
  )
  cache = str(tmp_path / 'cache')
  want = load_dataset(name, data_dir=str(tmp_path / 'tfds'), cache_dir=cache)
  assert load(tmp_path, name).fingerprint == want.fingerprint


def test_what_is_to_be_downloaded_is_listed_at_once(tmp_path):
  archives, _ = small_archives.write_archives(tmp_path / 'net', ['mnist'])
  first, *others = archives['mnist']
  heard, folder = [], tmp_path / 'data' / 'downloads'
  folder.mkdir(parents=True)
  shutil.copy(tmp_path / 'net' / first.name, folder)
  prepare(['mnist'], str(tmp_path / 'data'), heard.append, archives)
  assert heard[0].splitlines() == [
    f'To be in {folder}, 0 MB:',
    *(f'  {one.url}  as {one.name}' for one in others),
  ]


def test_tiny_imagenet_is_unpacked_whole_and_without_its_tests(tmp_path):
  _, heard = prepared(tmp_path, 'tiny_imagenet')
  dataset = load(tmp_path, 'tiny_imagenet')
  assert dataset.train.x.shape == (200, 64, 64, 3)
  assert dataset.test.y.tolist() == list(range(small_archives.TEST))
  folders = {path.name for path in (tmp_path / 'data').iterdir()}
  assert folders == {'downloads', 'tiny-imagenet-200'}
  assert not (tmp_path / 'data' / 'tiny-imagenet-200' / 'test').exists()
  _, heard = prepared(tmp_path, 'tiny_imagenet')
  assert 'already' in heard[0]


@pytest.mark.parametrize('damage', ['flip', 'cut'])
def test_damaged_arrays_are_written_again(tmp_path, damage):
  prepared(tmp_path, 'mnist')
  want = load(tmp_path, 'mnist').fingerprint
  for file in (tmp_path / 'data' / 'downloads').iterdir():
    file.unlink()  # they are not needed any more
  _, heard = prepared(tmp_path, 'mnist')
  assert 'already, unchanged' in heard[0]
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


def test_what_tfds_prepared_is_left(tmp_path, write_prepared):
  x = np.zeros((20, 28, 28, 1), np.uint8), np.arange(20) % 10
  write_prepared(tmp_path / 'data', 'mnist', {'train': x, 'test': x})
  _, heard = prepared(tmp_path, 'mnist')
  assert 'prepared by TensorFlow Datasets' in heard[0]
  assert not (tmp_path / 'data' / 'downloads').exists()


def test_absent_data_sentence_has_the_command(tmp_path):
  for name in ('cifar10', 'tiny_imagenet'):
    message = refused(load, tmp_path, name)
    command = f'experiments/prepare.py {name} --data_dir={tmp_path}/data'
    assert command in message
    assert not is_available(name, str(tmp_path / 'data'))


def test_an_unknown_name_is_refused_before_anything_is_fetched(tmp_path):
  message = refused(prepare, ['mnist', 'svnh'], str(tmp_path / 'data'))
  assert 'did you mean svhn?' in message
  assert not (tmp_path / 'data').exists()


def test_a_disk_that_refuses_sentence(tmp_path):
  (tmp_path / 'data').write_text('a file in the place of the folder')
  message = refused(prepared, tmp_path, 'mnist')
  assert message.startswith('data_dir: got ') and 'not a directory' in message


def test_addresses_and_digests_are_those_that_tfds_checks():
  """Its lists are in its package: URL, size, SHA-256 and file name."""
  known = set()
  for file in importlib.metadata.files('tensorflow_datasets'):
    if re.fullmatch(
      r'(cifar100?|emnist|(fashion_)?mnist)\.txt|checksums\.tsv', file.name
    ):
      lines = pathlib.Path(file.locate()).read_text().splitlines()
      known |= {tuple(line.split('\t')[:3]) for line in lines}
  for name, archives in ARCHIVES.items():
    for archive in archives:
      row = (archive.url, str(archive.size), archive.sha256)
      assert (row in known) == (name != 'tiny_imagenet'), archive.url
  names = [a.name for archives in ARCHIVES.values() for a in archives]
  assert len({*names}) == len(names) == 14


def test_the_order_is_that_of_tfds_itself():
  from tensorflow_datasets.core import hashing

  for split in ('train', 'test'):
    hasher = hashing.Hasher(split)
    want = sorted(range(300), key=hasher.hash_key)
    np.testing.assert_array_equal(tfds_order(split, 300), want)
