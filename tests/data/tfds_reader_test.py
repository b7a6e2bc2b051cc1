import json
import sys

import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import tfds_reader


def make_splits(shape, num_classes, sizes=(23, 11)):
  rng = np.random.default_rng(0)
  return {
    split: (
      rng.integers(0, 256, (size, *shape), dtype=np.uint8),
      rng.permutation(np.arange(size) % num_classes),
    )
    for split, size in zip(('train', 'test'), sizes, strict=True)
  }


def test_reads_what_was_written_without_tensorflow(tmp_path, write_prepared):
  splits = make_splits((28, 28, 1), 10)
  folder = write_prepared(tmp_path, 'mnist', splits)
  assert tfds_reader.find_prepared('mnist', str(tmp_path)) == folder
  for images, (x, y) in zip(
    tfds_reader.read_splits('mnist', folder), splits.values(), strict=True
  ):
    np.testing.assert_array_equal(images.x, x)
    np.testing.assert_array_equal(images.y, y)
    assert (images.x.dtype, images.y.dtype) == (np.uint8, np.int32)
  assert 'tensorflow' not in sys.modules


def test_examples_with_ids_come_in_the_order_of_their_ids(
  tmp_path, write_prepared
):
  # More than one chunk of 500, so that chunks are joined in order as well.
  splits = make_splits((8, 8, 3), 10, sizes=(1100, 10))
  folder = write_prepared(tmp_path, 'cifar10', splits, ids=True)
  train, _ = tfds_reader.read_splits('cifar10', folder)
  np.testing.assert_array_equal(train.x, splits['train'][0])
  np.testing.assert_array_equal(train.y, splits['train'][1])


def test_emnist_is_turned_upright(tmp_path, write_prepared):
  splits = make_splits((28, 28, 1), 62, sizes=(62, 62))
  folder = write_prepared(tmp_path, 'emnist/byclass', splits)
  train, _ = tfds_reader.read_splits('emnist/byclass', folder)
  x = splits['train'][0]
  np.testing.assert_array_equal(train.x[5, :, 3], x[5, 3, :])


def write_info(tmp_path, version, file_format):
  folder = tmp_path / 'cifar10' / version
  folder.mkdir(parents=True)
  info = json.dumps({'fileFormat': file_format})
  (folder / 'dataset_info.json').write_text(info)
  return folder


def test_the_newest_readable_version_is_found(tmp_path):
  write_info(tmp_path, '3.0.2', 'array_record')
  newest = write_info(tmp_path, '3.0.10', 'array_record')
  write_info(tmp_path, '4.0.0', 'tfrecord')
  write_info(tmp_path, 'incomplete.X_5.0.0', 'array_record')
  assert tfds_reader.find_prepared('cifar10', str(tmp_path)) == newest


def test_default_folder(tmp_path, monkeypatch):
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  assert tfds_reader.data_root() == tmp_path
  assert tfds_reader.data_root('/other').as_posix() == '/other'
  monkeypatch.delenv('TFDS_DATA_DIR')
  assert tfds_reader.data_root().name == 'tensorflow_datasets'


def test_other_format_sentence(tmp_path):
  write_info(tmp_path, '3.0.2', 'tfrecord')
  assert tfds_reader.find_prepared('cifar10', str(tmp_path)) is None
  message = str(tfds_reader.not_prepared('cifar10', str(tmp_path), []))
  assert 'prepared as tfrecord' in message
  message = str(tfds_reader.not_prepared('mnist', str(tmp_path), ['digits']))
  assert f'{tmp_path}/mnist/<version>' in message
  assert 'Choices: digits.' in message and '--config.data_dir' in message
  command = f'experiments/prepare.py mnist --data_dir={tmp_path}'
  assert command in message and 'in array_record format' in message


def test_damaged_files_sentence(tmp_path, write_prepared):
  folder = write_prepared(tmp_path, 'mnist', make_splits((28, 28, 1), 10))
  file = next(folder.glob('*-test.array_record*'))
  file.write_bytes(file.read_bytes()[:100])
  with pytest.raises(BadInput, match=r'mnist, and while reading .*delete the'):
    tfds_reader.read_splits('mnist', folder)
