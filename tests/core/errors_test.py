"""The sentence about input that a user can correct, and about paths."""

import os
import pathlib

import pytest
from helpers import refused

from fedjax_pfl.core.errors import bad_input, expand_home
from fedjax_pfl.data import is_available, load_dataset, peek

readers = pytest.mark.parametrize('call', [is_available, load_dataset, peek])


def words(got, *choices):
  return str(
    bad_input('model', got=got, expected='x', choices=choices, cause='y')
  )


def test_the_nearest_choice_is_named_whatever_is_upper_case():
  assert '(did you mean fedbabu?)' in words('FedBABU', 'fedavg', 'fedbabu')
  assert '(did you mean Gait?)' in words('gait', 'Gait', 'Reviews')
  assert 'did you mean' not in words('resnet10', 'vgg9')
  assert 'Choices: none.' in words('resnet10')


def test_the_home_directory(monkeypatch):
  monkeypatch.setenv('HOME', '/users/ada')
  for given, want in (('~/a', '/users/ada/a'), ('a/~/b', 'a/~/b'), ('', '')):
    assert expand_home('data_dir', given) == pathlib.Path(want)


@readers
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


@readers
@pytest.mark.parametrize('name', ['npz', 'folder'])
def test_sentence_for_a_folder_that_may_not_be_read(locked, call, name):
  message = refused(lambda: call(name, data_dir=str(locked / 'inner')))
  assert message.startswith('data_dir: got ')
  assert 'locked/inner' in message and 'which this account may not' in message
