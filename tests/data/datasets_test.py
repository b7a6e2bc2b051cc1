"""Image sets by name, and the arrays and the cache behind them."""

import os

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import stored_arrays
from fedjax_pfl.data.datasets import is_available, load_dataset, peek
from fedjax_pfl.data.images import Images, Shape, Synthetic, make_dataset
from fedjax_pfl.data.prepared import folder_of
from fedjax_pfl.data.stored_arrays import load_cached, write_entry


def small_set(shape=(32, 32, 3), num_classes=10):
  rng = np.random.default_rng(0)
  splits = (
    Images(
      rng.integers(0, 256, (size, *shape), np.uint8),
      np.arange(size, dtype=np.int32) % 10,
    )
    for size in (30, 12)
  )
  return make_dataset('cifar10', *splits, num_classes)


def store(root, **changes):
  """Write a small set to where prepare.py has its arrays."""
  dataset = small_set(**changes)
  write_entry(folder_of('cifar10', root), dataset)
  return dataset


def assert_same(got, want):
  assert got[3:] == want[3:]
  arrays = (*got.train, *got.test), (*want.train, *want.test)
  for a, b in zip(*arrays, strict=True):
    np.testing.assert_array_equal(a, b)
    assert a.dtype == b.dtype


def test_digits_have_the_same_bits_on_every_machine():
  assert load_dataset('digits').fingerprint == '186130151517'


def test_other_accounts_may_read_prepared_arrays_as_any_folder(tmp_path):
  folder = folder_of('cifar10', tmp_path)
  left = folder.parent / f'{stored_arrays.HALF}of_a_killed_process'
  (left / 'entry').mkdir(parents=True)
  store(tmp_path)
  assert left.exists()  # the other process may be at work
  os.utime(left, (0, 0))
  store(tmp_path)
  assert folder.stat().st_mode == folder.parent.stat().st_mode
  assert [*folder.parent.iterdir()] == [folder]


def test_prepared_arrays_that_are_locked_are_not_called_damaged(
  tmp_path, monkeypatch
):
  store(tmp_path)

  def read_entry(folder):
    raise PermissionError(13, 'Permission denied', f'{folder}/meta.json')

  monkeypatch.setattr(stored_arrays, 'read_entry', read_entry)
  message = refused(lambda: load_dataset('cifar10', data_dir=str(tmp_path)))
  assert 'meta.json, which this account may not read' in message


def test_synthetic_stands_in_only_where_asked_and_needed(tmp_path):
  place = {'data_dir': str(tmp_path)}
  assert not is_available('cifar10', **place)
  message = refused(lambda: load_dataset('cifar10', **place))
  assert f'which {tmp_path}/cifar10 does not hold' in message
  assert 'Choices: digits, synthetic.' in message
  assert f'fedjax-pfl prepare cifar10 --data_dir={tmp_path}' in message
  dataset = load_dataset('cifar10', **place, fallback_to_synthetic=True)
  assert dataset.name == 'synthetic'
  assert dataset.train.x.shape == (5000, 32, 32, 3)
  assert 'cifar10 is not in' in dataset.note
  store(tmp_path)
  assert is_available('cifar10', **place)
  dataset = load_dataset('cifar10', **place, fallback_to_synthetic=True)
  assert (dataset.name, dataset.note) == ('cifar10', '')


def test_another_set_under_this_name_sentence(tmp_path):
  store(tmp_path, shape=(16, 16, 3), num_classes=11)
  message = refused(lambda: load_dataset('cifar10', data_dir=str(tmp_path)))
  assert 'image_shape=(16, 16, 3)' in message and 'num_classes=11' in message


# ---- generated images


def test_equal_specs_give_equal_bits_and_seeds_differ():
  one, two = (load_dataset('synthetic') for _ in range(2))
  assert one.fingerprint == two.fingerprint
  np.testing.assert_array_equal(one.train.x, two.train.x)
  other = load_dataset('synthetic', synthetic=Synthetic(seed=1))
  assert other.fingerprint != one.fingerprint


def test_shapes_and_balance():
  spec = Synthetic((9, 12, 3), 7, 70, 21)
  dataset = load_dataset('synthetic', synthetic=spec)
  assert peek('synthetic', synthetic=spec) == Shape((9, 12, 3), 7)
  assert dataset.train.x.shape == (70, 9, 12, 3)
  assert (dataset.train.x.dtype, dataset.train.y.dtype) == (np.uint8, np.int32)
  assert np.bincount(dataset.train.y).tolist() == [10] * 7
  assert np.bincount(dataset.test.y).tolist() == [3] * 7


# ---- the cache of decoded images


def must_not_build():
  raise AssertionError('built although the entry was there')


@pytest.mark.parametrize('name', ['train_x', 'meta'])
@pytest.mark.parametrize('damage', ['short', 'gone', 'other'])
def test_damaged_entry_is_built_again(tmp_path, name, damage):
  want = load_cached('a', 'key', small_set)
  file = next(tmp_path.glob(f'cache/*/{name}.*'))
  content = file.read_bytes()
  file.unlink()
  if damage == 'other':
    np.save(file.with_suffix('.npy'), np.zeros(7, np.int32))
  elif damage != 'gone':
    file.write_bytes(content[: len(content) // 2])
  assert_same(load_cached('a', 'key', small_set), want)
  assert_same(load_cached('a', 'key', must_not_build), want)
