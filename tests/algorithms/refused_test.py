"""Methods are found by the name of their file; bad hyperparameters refused."""

import importlib
import sys

import pytest
from helpers import ALGORITHMS, KEY, TRAIN, build, make_task, params_of, refused

from fedjax_pfl import algorithms
from fedjax_pfl.algorithms import load
from fedjax_pfl.training import warm_start


@pytest.mark.parametrize('name', ALGORITHMS)
def test_a_bad_hyperparameter_is_refused_in_the_words_of_its_rule(name):
  """No hyperparameter with a rule is a negative number, or any word."""
  for field, stated in load(name).HParams.ruled.items():
    for value in ('nonsense', -1.0):
      message = refused(lambda hp: build(name, **hp), {field: value})
      assert message.startswith(f'hp.{field}: got {value!r}, expected ')
      assert stated.rule.expected in message


@pytest.mark.parametrize(
  ('name', 'field', 'value'),
  [
    ('apfl', 'alpha', float('nan')),
    ('pfedme', 'inner_steps', 2.5),
    ('fedconcat', 'cap_factor', 1.0),
    ('superfed', 'grid', (0.0, 0.5, 0.5)),
    ('superfed', 'grid', ('0.5',)),
    ('fedala', 'percent', 0.8),
  ],
)
def test_a_value_near_to_a_good_one(name, field, value):
  assert f'hp.{field}: got' in refused(
    lambda hp: build(name, **hp), {field: value}
  )


def test_what_no_rule_of_one_number_says():
  load('superfed').check_start(None, '')
  message = refused(load('superfed').check_start, None, 'runs/a')
  assert message.startswith("init_from: got 'runs/a'")
  ifca = load('ifca')
  for clusters, start in ((1, 'runs/a'), (2, ''), (2, 'a.safetensors')):
    ifca.check_start(ifca.HParams(clusters=clusters), start)
  assert 'begin apart' in refused(ifca.check_start, ifca.HParams(), 'runs/a')
  params = params_of(make_task())
  begin_ifca(params, 1)
  begin_ifca({**params, 'head': {'kernel': None, 'bias': None}}, 2)
  message = refused(begin_ifca, params, 2)
  assert 'the 2 models have to begin apart' in message
  hp = {'train': TRAIN._replace(rounds=0), 'distributions': 'true'}
  message = refused(lambda hp: build('fedconcat', **hp), hp)
  assert message.startswith('rounds: got 0, expected 1 round or more')


def begin_ifca(start, clusters):
  task = warm_start.Start('', start, '', '').begin(make_task())
  build('ifca', task, clusters=clusters)[0].algorithm.init_server(KEY(0))


def test_a_new_file_is_all_it_takes(tmp_path, monkeypatch):
  package = importlib.import_module('fedjax_pfl.algorithms')
  monkeypatch.setattr(package, '__path__', [*package.__path__, str(tmp_path)])
  (tmp_path / 'fednew.py').write_text('PRIVATE_LEAVES = ("head",)\n')
  try:
    assert 'fednew' in algorithms.available()
    assert load('fednew').PRIVATE_LEAVES == ('head',)
  finally:
    sys.modules.pop('fedjax_pfl.algorithms.fednew', None)
