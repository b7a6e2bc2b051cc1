import numpy as np
import pytest

from fedjax_pfl.core.atomic_files import cache_root
from fedjax_pfl.data.images import Images, make_dataset
from fedjax_pfl.data.stored_arrays import files_key, load_cached


def build():
  rng = np.random.default_rng(0)
  train, test = (
    Images(
      rng.integers(0, 256, (size, 4, 4, 1), dtype=np.uint8),
      np.arange(size, dtype=np.int32) % 3,
    )
    for size in (30, 12)
  )
  return make_dataset('a/b', train, test, 3)


def must_not_build():
  raise AssertionError('built although the entry was there')


def assert_same(got, want):
  assert got.fingerprint == want.fingerprint
  assert got[3:] == want[3:]
  arrays = (*got.train, *got.test), (*want.train, *want.test)
  for a, b in zip(*arrays, strict=True):
    np.testing.assert_array_equal(a, b)
    assert a.dtype == b.dtype


def test_the_second_start_reads_the_cache(tmp_path):
  first = load_cached('a/b', 'key', build, str(tmp_path))
  again = load_cached('a/b', 'key', must_not_build, str(tmp_path))
  assert_same(again, first)
  with pytest.raises(AssertionError):
    load_cached('a/b', 'other key', must_not_build, str(tmp_path))
  assert not list(tmp_path.glob('.half*'))


@pytest.mark.parametrize('name', ['train_x', 'test_y', 'meta'])
@pytest.mark.parametrize('damage', ['short', 'empty', 'gone'])
def test_damaged_entry_is_built_again(tmp_path, name, damage):
  want = load_cached('a/b', 'key', build, str(tmp_path))
  file = next(tmp_path.glob(f'*/{name}.*'))
  content = file.read_bytes()
  file.unlink()
  if damage != 'gone':
    file.write_bytes(content[: len(content) // 2 if damage == 'short' else 0])
  assert_same(load_cached('a/b', 'key', build, str(tmp_path)), want)
  assert_same(load_cached('a/b', 'key', must_not_build, str(tmp_path)), want)


def test_arrays_of_another_entry_are_not_used(tmp_path):
  load_cached('a/b', 'key', build, str(tmp_path))
  file = next(tmp_path.glob('*/train_y.npy'))
  np.save(file, np.zeros(7, np.int32))
  with pytest.raises(AssertionError):
    load_cached('a/b', 'key', must_not_build, str(tmp_path))


def test_an_unwritable_cache_is_ignored(tmp_path):
  blocked = tmp_path / 'file'
  blocked.write_text('not a folder')
  assert_same(load_cached('a/b', 'key', build, str(blocked)), build())


def test_where_the_cache_is(monkeypatch):
  monkeypatch.setenv('FEDJAX_PFL_CACHE', '/two')
  monkeypatch.setenv('XDG_CACHE_HOME', '/three')
  assert str(cache_root('/one')) == '/one'
  assert str(cache_root()) == '/two'
  monkeypatch.delenv('FEDJAX_PFL_CACHE')
  assert str(cache_root()) == '/three/fedjax_pfl'
  monkeypatch.delenv('XDG_CACHE_HOME')
  assert cache_root().parts[-2:] == ('.cache', 'fedjax_pfl')


def test_the_key_sees_every_change_of_the_files(tmp_path):
  file = tmp_path / 'a'
  file.write_text('one')
  before = files_key([file])
  assert files_key([file]) == before != files_key([file], ['a class'])
  file.write_text('three')
  assert files_key([file]) != before
