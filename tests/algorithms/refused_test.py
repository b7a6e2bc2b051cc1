"""Methods are found by the name of their file; bad hyperparameters refused."""

import importlib
import sys

import pytest
from helpers import ALGORITHMS, TRAIN, build, refused

from fedjax_pfl import algorithms
from fedjax_pfl.algorithms import load

# What breaks each of the RULES of a method.
BAD = {
  'apfl': {
    'alpha': [1.5, float('nan')],
    'adapt': ['first_stp'],
    'order': ['parallel'],
    'protocol': ['relased'],
    'private_decay': [-1e-4],
  },
  'ditto': {
    'protocol': ['papers'],
    'anchor': ['glob'],
    'lam': [-1.0],
    'personal_momentum': [1.0],
    'personal_epochs': [0],
  },
  'fedavg': {'head_lr_ratio': [-1]},
  'fedconcat': {
    'clusters': [0, 2.5],
    'distributions': ['infered'],
    'head': ['warm'],
    'cache': [True],
    'classifier_rounds': [0],
    'classifier_steps': [0],
    'classifier_decay': [-1.0],
    'cap_factor': ['1.2', 1.0],
    'noise_inputs': [0],
  },
  'fedlc': {'tau': [-1.0]},
  'fedper': {'protocol': ['relased']},
  'fedprox': {'mu': [-0.1], 'distance': ['squares']},
  'fedrep': {
    'protocol': ['code'],
    'head_epochs': [-1, 0.5],
    'body_epochs': [0],
    'momentum': [1.0],
  },
  'fedrs': {'alpha': [-0.1, 50.0]},
  'lg_fedavg': {'learning_rate': [0.0], 'protocol': ['public']},
  'moon': {'mu': [-0.1, float('nan')], 'temperature': [0.0]},
  'per_fedavg': {'protocol': ['code'], 'beta': [-0.1, 0]},
  'pfedme': {
    'inner_steps': [0, 2.5],
    'inner_lr': [0.0],
    'lam': [-5.0],
    'beta': [0.0, float('inf')],
  },
  'superfed': {
    'protocol': ['released'],
    'mixing': ['layers'],
    'twice': ['kernel'],
    'local_init': ['global'],
    'pairing': [''],
    'mu': [-0.01],
    'nu': [-1.0],
    'phase_start': [40, -0.1],
    'grid': [(0.0, 1.1), (-0.1, 1.0), (0.0, 0.5, 0.5), (1.0, 0.0)],
  },
}


@pytest.mark.parametrize('name', ALGORITHMS)
def test_a_bad_hyperparameter_is_refused_in_the_words_of_its_rule(name):
  rules = getattr(load(name), 'RULES', {})
  assert {*rules} == {*BAD.get(name, {})}
  for field, values in BAD.get(name, {}).items():
    for value in values:
      message = refused(lambda hp: build(name, **hp), {field: value})
      assert message.startswith(f'hp.{field}: got {value!r}, expected ')
      assert rules[field].expected in message
      assert rules[field].cause in message


def test_what_no_rule_of_one_number_says():
  load('superfed').check_start(None, '')
  message = refused(load('superfed').check_start, None, 'runs/a')
  assert message.startswith("init_from: got 'runs/a'")
  for way in ('true', 'inferred'):  # C would be trained on no encoders
    hp = {'train': TRAIN._replace(rounds=0), 'distributions': way}
    message = refused(lambda hp: build('fedconcat', **hp), hp)
    assert message.startswith('rounds: got 0, expected 1 round or more')


# ---- Found by name -----------------------------------------------------------


def test_load_returns_the_file_of_that_name():
  assert len(ALGORITHMS) >= 2 and list(ALGORITHMS) == sorted(ALGORITHMS)
  for name in ALGORITHMS:
    assert load(name).__name__ == f'fedjax_pfl.algorithms.{name}'
  message = refused(load, 'fedbabbu')
  assert message.startswith("algorithm: got 'fedbabbu', expected the name of a")
  assert all(name in message for name in ALGORITHMS)
  assert '(did you mean fedbabu?)' in message


def test_a_new_file_is_all_it_takes(tmp_path, monkeypatch):
  package = importlib.import_module('fedjax_pfl.algorithms')
  monkeypatch.setattr(package, '__path__', [*package.__path__, str(tmp_path)])
  (tmp_path / 'fednew.py').write_text('PRIVATE_LEAVES = ("head",)\n')
  try:
    assert 'fednew' in algorithms.available()
    assert load('fednew').PRIVATE_LEAVES == ('head',)
  finally:
    sys.modules.pop('fedjax_pfl.algorithms.fednew', None)
