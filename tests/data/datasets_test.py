import pathlib
import subprocess
import sys

import numpy as np
import pytest

import fedjax_pfl
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import NAMES, is_available, load_dataset, peek
from fedjax_pfl.data.transforms import RECIPES


def cifar(sizes=(20, 10)):
  rng = np.random.default_rng(0)
  return {
    split: (
      rng.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8),
      np.arange(size) % 10,
    )
    for split, size in zip(('train', 'test'), sizes, strict=True)
  }


def in_folder(path):
  return {'data_dir': str(path), 'cache_dir': str(path / 'cache')}


def test_digits_are_split_by_class_in_the_order_of_the_file():
  from sklearn.datasets import load_digits

  x, y = load_digits(return_X_y=True)
  dataset = load_dataset('digits')
  assert dataset.train.x.shape == (1442, 8, 8, 1)
  assert dataset.test.x.shape == (355, 8, 8, 1)
  assert dataset.train.x.max() == 255
  for label in range(10):
    own = x[y == label].reshape(-1, 8, 8, 1)
    held_out = np.arange(len(own)) % 5 == 4
    for images, rows in ((dataset.train, ~held_out), (dataset.test, held_out)):
      np.testing.assert_allclose(
        images.x[images.y == label] * (16 / 255), own[rows], atol=0.04
      )


def test_every_name_can_be_peeked_at_and_has_transforms():
  for name in set(NAMES) - {'folder', 'npz'}:
    shape = peek(name)
    assert len(shape.image_shape) == 3, name
    assert shape.num_classes >= 10, name
  assert set(NAMES) == set(RECIPES)


def test_cold_and_warm_start(tmp_path, write_prepared):
  splits = cifar()
  write_prepared(tmp_path, 'cifar10', splits)
  heard = []
  places = in_folder(tmp_path)
  cold = load_dataset('cifar10', **places, log_fn=heard.append)
  np.testing.assert_array_equal(cold.train.x, splits['train'][0])
  warm = load_dataset('cifar10', **places, log_fn=heard.append)
  np.testing.assert_array_equal(warm.train.x, cold.train.x)
  assert warm.fingerprint == cold.fingerprint
  assert len(heard) == 1
  assert 'cifar10' in heard[0]


def test_newly_prepared_files_are_read_again(tmp_path, write_prepared):
  places = in_folder(tmp_path)
  write_prepared(tmp_path, 'cifar10', cifar(), version='3.0.2')
  first = load_dataset('cifar10', **places)
  write_prepared(tmp_path, 'cifar10', cifar((30, 10)), version='3.0.3')
  second = load_dataset('cifar10', **places)
  assert len(second.train.y) == 30
  assert second.fingerprint != first.fingerprint


def test_warm_start_imports_neither_tfds_nor_tensorflow(
  tmp_path, write_prepared
):
  write_prepared(tmp_path, 'cifar10', cifar())
  places = in_folder(tmp_path)
  want = load_dataset('cifar10', **places).fingerprint
  program = (
    'import sys\n'
    'from fedjax_pfl.data import load_dataset\n'
    f'dataset = load_dataset("cifar10", **{places!r})\n'
    'heavy = {"tensorflow", "tensorflow_datasets", "sklearn", "PIL"}\n'
    'print(dataset.fingerprint, sorted(heavy & sys.modules.keys()))\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program],
    capture_output=True,
    text=True,
    check=True,
    cwd=pathlib.Path(fedjax_pfl.__file__).parents[1],
  )
  assert done.stdout.strip() == f'{want} []'


def test_synthetic_stands_in_only_where_asked_and_needed(
  tmp_path, write_prepared
):
  places = in_folder(tmp_path)
  assert not is_available('cifar10', str(tmp_path))
  with pytest.raises(BadInput, match=f'in {tmp_path}/cifar10/<version>'):
    load_dataset('cifar10', **places)
  dataset = load_dataset('cifar10', **places, fallback_to_synthetic=True)
  assert dataset.name == 'synthetic'
  assert dataset.train.x.shape == (5000, 32, 32, 3)
  assert dataset.num_classes == 10
  assert 'cifar10 is not in' in dataset.note
  write_prepared(tmp_path, 'cifar10', cifar())
  assert is_available('cifar10', str(tmp_path))
  dataset = load_dataset('cifar10', **places, fallback_to_synthetic=True)
  assert (dataset.name, dataset.note) == ('cifar10', '')


@pytest.mark.parametrize('function', [load_dataset, peek, is_available])
def test_unknown_name_sentence(function):
  with pytest.raises(BadInput, match=r'did you mean cifar10\?'):
    function('cifr10')


@pytest.mark.parametrize(
  ('shape', 'num_classes', 'message'),
  [((16, 16, 3), 10, r'images \(16, 16, 3\)'), ((32, 32, 3), 11, 'up to 10')],
)
def test_another_set_under_this_name_sentence(
  tmp_path, write_prepared, shape, num_classes, message
):
  y = np.arange(20) % num_classes
  split = np.zeros((20, *shape), np.uint8), y
  write_prepared(tmp_path, 'cifar10', {'train': split, 'test': split})
  with pytest.raises(BadInput, match=message):
    load_dataset('cifar10', **in_folder(tmp_path))
