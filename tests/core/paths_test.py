"""Home directories in paths."""

import os
import pathlib

import pytest
from helpers import refused

from fedjax_pfl.core.paths import expand_home
from fedjax_pfl.data import is_available, load_dataset, peek


def test_the_home_directory(monkeypatch):
  monkeypatch.setenv('HOME', '/users/ada')
  assert expand_home('data_dir', '~/a') == pathlib.Path('/users/ada/a')
  assert expand_home('data_dir', 'a/~/b') == pathlib.Path('a/~/b')
  assert expand_home('data_dir', '') == pathlib.Path('')


@pytest.mark.parametrize('call', [is_available, load_dataset, peek])
@pytest.mark.parametrize('name', ['npz', 'folder', 'cifar10'])
def test_sentence_for_a_user_without_a_home(call, name):
  """peek of cifar10 reads nothing: its shape is known."""
  if (call, name) == (peek, 'cifar10'):
    assert peek(name, data_dir='~no_user_of_this/a').num_classes == 10
    return
  message = refused(lambda: call(name, data_dir='~no_user_of_this/a.npz'))
  assert message.startswith("data_dir: got '~no_user_of_this/a.npz', expected")
  assert './~no_user_of_this/a.npz' in message


@pytest.fixture
def locked(tmp_path):
  """Return a folder that this process may not open; root may open any."""
  folder = tmp_path / 'locked'
  folder.mkdir(mode=0)
  is_root = os.geteuid() == 0
  if is_root:
    os.seteuid(65534)  # nobody
  yield folder
  if is_root:
    os.seteuid(0)
  folder.chmod(0o700)


@pytest.mark.parametrize('call', [is_available, load_dataset, peek])
@pytest.mark.parametrize('name', ['npz', 'folder'])
def test_sentence_for_a_folder_that_may_not_be_read(locked, call, name):
  message = refused(lambda: call(name, data_dir=str(locked / 'inner')))
  assert message.startswith('data_dir: got ')
  assert 'locked/inner' in message and 'which this account may not' in message
