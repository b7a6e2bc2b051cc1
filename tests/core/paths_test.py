"""Home directories in paths."""

import pathlib

import pytest
from helpers import refused

from fedjax_pfl.core.paths import expand_home
from fedjax_pfl.data import is_available, load_dataset, peek


def test_the_home_directory(monkeypatch):
  monkeypatch.setenv('HOME', '/home/ada')
  assert expand_home('data_dir', '~/a') == pathlib.Path('/home/ada/a')
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
