"""When two trainings, and two ways of evaluation, have one key."""

import json
import shutil

import pytest
from finished_runs import make_run, make_settings
from helpers import refused

from fedjax_pfl import algorithms
from fedjax_pfl.algorithms import own_defaults
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config, to_config
from fedjax_pfl.training import keys

# Of a config of the time when results were stored.
STORED = {'shards_per_client': 2, 'learning_rate': 0.1}


def training(data='a-b', start_key='', drop=(), **changes):
  config = make_settings(**changes)
  for name in drop:
    del config[name]
  return keys.training_key(parse_config(config), data, start_key)


def evaluation(**changes):
  return keys.evaluation_key(parse_config(make_settings(**changes)))


def finetune(**changes):
  return {**make_settings()['finetune'], **changes}


def test_a_key_is_that_of_what_config_json_gives_back():
  config = make_settings(algorithm='fedprox', hp={'mu': 1.0})
  key = keys.training_key(parse_config(config), 'a-b')
  plain = {**config, 'hp': {'mu': 1}}
  plain = json.loads(json.dumps(dict(reversed(plain.items()))))
  assert isinstance(plain['lr_milestones'], list)
  assert keys.training_key(parse_config(plain), 'a-b') == key
  assert len(key) == 16 and int(key, 16)


@pytest.mark.parametrize(
  'same',
  [
    {'rounds': 16, 'total_epochs': 1},  # 80 epochs by 5
    {'drop': ['scoring', 'eval_global_model']},  # an older run directory
    {'finetune': finetune(epochs=(1, 5)), 'adapt_on': 'test_half'},
    {'scoring': 'batches', 'views': ('finetuned',)},
    {'clients_per_chunk': 1, 'devices': 2, 'data_dir': '/x'},
    {'data': 'a-b+0123456789ab'},
  ],
)
def test_the_same_training(same):
  assert training(**same) == training()


@pytest.mark.parametrize(
  'other',
  [
    {'data': 'a-c'},
    {'seed': 1},
    {'hp': {'trainable': 'head'}},
    {'start_key': training()},
    {'eval_every': 3},  # the best of other rounds
    {'test_partition': 'whole'},
    {'validation_fraction': 0.1},
  ],
)
def test_another_training(other):
  assert training(**other) != training()


def test_keys_stay_as_they_are():
  """Stored results are found by keys of the time when they were stored."""
  assert training(rounds=17, seed=3, **STORED) == 'c1a3da278806cb80'
  assert (
    training(algorithm='ditto', hp={'lam': 0.5}, **STORED) == 'f94d084b26dbe1e8'
  )
  assert evaluation(scoring='batches') == '6be08c3558ce9903'


@pytest.mark.parametrize('method', algorithms.available())
def test_writing_out_a_default_changes_no_key(method):
  """Of hyperparameters, and of all other fields."""
  key = training(algorithm=method, hp={})
  assert training(algorithm=method, hp=own_defaults(method)) == key
  whole = to_config(parse_config(make_settings(algorithm=method, hp={})))
  assert keys.training_key(parse_config(whole), 'a-b') == key


def test_a_directory_of_something_else(tmp_path):
  (tmp_path / 'config.json').write_text('[1]')
  assert 'not an object with names' in refused(keys.run_key, tmp_path)


def test_evaluation():
  assert evaluation() == evaluation(
    shards_per_client=5, seed=1, views=('finetuned',), rounds=3
  )
  changes = [
    {},
    {'finetune': finetune(trainable='body')},
    {'adapt_on': 'test_half'},
    {'scoring': 'batches'},
    {'test_partition': 'independent'},
    {'validation_fraction': 0.1, 'select': 'validation'},
  ]
  assert len({evaluation(**own) for own in changes}) == len(changes)


def test_the_run_that_another_started_from(tmp_path):
  """Found at its path, in the same folder, or among those that are known."""
  first = make_run(tmp_path / 'first', model=b'1')
  digest, start = run_dir.model_digest(first), keys.run_key(first)
  begun = {'init_from': str(first), 'data': f'images-clients+{digest}'}
  second = make_run(tmp_path / 'second', model=b'2', **begun)
  expected = training('images-clients', start, init_from='elsewhere')
  assert keys.run_key(second) == expected
  kept = {'validation_fraction': 0.1}  # of which round its model is
  last, best = (
    make_run(tmp_path / select, select=select, **kept)
    for select in ('last', 'validation')
  )
  assert keys.run_key(last) != keys.run_key(best)
  moved = first.rename(tmp_path / 'moved')
  assert keys.run_key(second) == expected
  shutil.rmtree(moved)
  assert keys.run_key(second, known={digest: start}) == expected
  assert 'started from the final model of' in refused(keys.run_key, second)
  # As a clone has it, which has no models: by the digest in result.json.
  make_run(tmp_path / 'first', result={'model': digest})
  assert keys.run_key(second) == expected
