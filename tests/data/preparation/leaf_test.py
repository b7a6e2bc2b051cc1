"""LEAF's JSON files become data sets with clients; or a sentence."""

import json

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.preparation import texts
from fedjax_pfl.data.preparation.prepare import prepare

LINE = 'To be, or not to be'.ljust(79, '.')
X = {
  'femnist': [[1.0] * 783 + [0.0]] * 5,
  'shakespeare': [LINE + '\n'] * 5,
  'sent140': [['1', 'Mon', 'NO_QUERY', 'ann', 'caf\u00e9 good']] * 5,
}
Y = {'femnist': 61, 'shakespeare': 'T', 'sent140': 1}


def write(file, name, users=('ann', 'bob'), kept=('ann', 'bob'), size=5):
  file.parent.mkdir(parents=True, exist_ok=True)
  one = {'x': X[name][:size], 'y': [Y[name]] * size}
  content = {
    'users': users,
    'num_samples': [size] * len(users),
    'user_data': dict.fromkeys(kept, one),
  }
  file.write_text(json.dumps(content))


def prepared(tmp_path, name):
  data = str(tmp_path / 'data')
  prepare([name], data, str, leaf=tmp_path / 'leaf')
  return load_dataset(name, data_dir=data)


@pytest.mark.parametrize('name', X)
def test_users_are_clients(tmp_path, name):
  write(tmp_path / 'leaf' / 'all_data_0.json', name)
  dataset = prepared(tmp_path, name)
  whole = [owners.tolist() for owners in dataset.clients]
  assert whole == [[0] * 4 + [1] * 4, [0, 1]]
  x, y = dataset.train.x[0], dataset.train.y[0]
  if name == 'femnist':
    assert (x.dtype, x.sum(), x[-1, -1, 0], y) == (np.uint8, 783 * 255, 0, 61)
    return
  place = {'shakespeare': 79, 'sent140': 8}[name]
  label = {'shakespeare': texts.SYMBOLS.index('T'), 'sent140': 1}[name]
  assert np.flatnonzero(y >= 0).tolist() == [place] and y[place] == label
  if name == 'sent140':
    assert ''.join(texts.SYMBOLS[n] for n in x[:9]) == 'caf\x0b good'


def test_a_division_of_leaf_is_kept(tmp_path):
  write(tmp_path / 'leaf' / 'train' / 'all_data_train_8.json', 'femnist')
  test = tmp_path / 'leaf' / 'test' / 'all_data_test_8.json'
  write(test, 'femnist', ('bob', 'ann'), size=2)
  train, test_owners = prepared(tmp_path, 'femnist').clients
  assert (len(train), test_owners.tolist()) == (10, [0, 0, 1, 1])
  write(test, 'femnist', ('bob', 'eve'), ('bob', 'eve'))
  (tmp_path / 'data').rename(tmp_path / 'before')
  message = refused(prepared, tmp_path, 'femnist')
  assert 'the user ann in one of train and test' in message


def test_a_user_of_two_files_is_refused(tmp_path):
  write(tmp_path / 'leaf' / 'all_data_0.json', 'femnist')
  write(tmp_path / 'leaf' / 'all_data_1.json', 'femnist', ['bob'])
  message = refused(prepared, tmp_path, 'femnist')
  assert 'all_data_1.json with the user bob, who was listed' in message


@pytest.mark.parametrize('twice', ['in users', 'in user_data'])
def test_a_user_given_twice_is_refused(tmp_path, twice):
  file = tmp_path / 'leaf' / 'all_data_0.json'
  write(file, 'femnist', ('ann', 'bob', 'ann'))
  if twice == 'in user_data':  # whose data would replace the others'
    write(file, 'femnist', ('ann', 'bob'))
    file.write_text(file.read_text().replace('"bob": {', '"ann": {'))
  message = refused(prepared, tmp_path, 'femnist')
  assert ('user ann, who was listed' in message) or ('stands twice' in message)
  assert not (tmp_path / 'data').exists()


@pytest.mark.parametrize('label', [-7, 3.7, '3', True, None, 62, 2**70, [3]])
def test_a_label_is_a_class(tmp_path, label, monkeypatch):
  for name in ('femnist', 'sent140'):
    monkeypatch.setitem(Y, name, label)
    write(tmp_path / 'leaf' / 'all_data.json', name)
    message = refused(prepared, tmp_path, name).replace('\\', '')
    assert f'the label {label!r} is no whole number' in message
  assert not (tmp_path / 'data').exists()


@pytest.mark.parametrize(
  'text', ['[' * 10_000, '[' * 60 + ']' * 60, '[]', '{"users": [[]]}']
)
def test_json_of_another_form_is_refused(tmp_path, text):
  (tmp_path / 'leaf').mkdir()
  (tmp_path / 'leaf' / 'all_data.json').write_text(text)
  refused(prepared, tmp_path, 'femnist')


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'users': (), 'kept': ()}, 'whose files list no user'),
    ({'kept': ('ann',)}, 'the user bob, of whom it has no data'),
    ({'kept': ('ann', 'bob', 'eve')}, 'data of the user eve, who is not'),
    ({'name': 'sent140'}, 'files of another set than femnist'),
  ],
)
def test_other_files_are_refused(tmp_path, change, words):
  file = tmp_path / 'leaf' / 'all_data.json'
  write(file, **{'name': 'femnist', **change})
  assert words in refused(prepared, tmp_path, 'femnist')
  file.write_text('{')
  assert 'a copy that was cut short' in refused(prepared, tmp_path, 'femnist')
  file.unlink()
  message = refused(prepared, tmp_path, 'femnist')
  assert 'which has no all_data' in message
  assert not (tmp_path / 'data').exists()
  assert 'nothing for femnist' in refused(prepare, ['femnist'])
