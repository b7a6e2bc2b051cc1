"""The sentence about input that a user can correct, and about paths."""

import os

import pytest
from helpers import refused

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.datasets import load_dataset


def words(got, *choices):
  return str(
    bad_input('model', got=got, expected='x', choices=choices, cause='y')
  )


def test_the_nearest_choice_is_named_whatever_is_upper_case():
  assert '(did you mean fedbabu?)' in words('FedBABU', 'fedavg', 'fedbabu')
  assert '(did you mean Gait?)' in words('gait', 'Gait', 'Reviews')
  assert 'did you mean' not in words('resnet10', 'vgg9')


def test_a_cause_is_told_where_there_is_one():
  assert words('a').endswith('Likely cause: y.')
  plain = bad_input('mu', got=-1, expected='a number, 0 or more')
  assert str(plain) == 'mu: got -1, expected a number, 0 or more.'


def test_sentence_for_a_user_without_a_home():
  place = '~no_user_of_this/a.npz'
  message = refused(lambda: load_dataset('npz', data_dir=place))
  assert message.startswith(f"data_dir: got '{place}', expected")
  assert f'./{place}' in message


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


@pytest.mark.parametrize(
  ('name', 'place'), [('npz', 'inner.npz'), ('folder', 'inner')]
)
def test_sentence_for_a_folder_that_may_not_be_read(locked, name, place):
  place = str(locked / place)
  message = refused(lambda: load_dataset(name, data_dir=place))
  assert message.startswith('data_dir: got ')
  assert 'locked/inner' in message and 'which this account may not' in message
