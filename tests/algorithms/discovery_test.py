"""Methods are found by the name of their file."""

import importlib
import sys

import jax.numpy as jnp
import pytest

from fedjax_pfl import algorithms
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import BadInput


def test_load_returns_the_file_of_that_name():
  names = algorithms.available()
  assert len(names) >= 2 and list(names) == sorted(names)
  for name in names:
    module = algorithms.load(name)
    assert module.__name__ == f'fedjax_pfl.algorithms.{name}'


def test_unknown_method_names_the_choices():
  with pytest.raises(BadInput) as error:
    algorithms.load('nope')
  sentence = str(error.value)
  assert sentence.startswith("algorithm: got 'nope', expected the name of a")
  assert all(name in sentence for name in algorithms.available())
  assert 'Likely cause: a typing error' in sentence


def test_near_miss_is_answered_with_a_suggestion():
  with pytest.raises(BadInput, match=r'did you mean fedbabu\?'):
    algorithms.load('fedbabbu')


def test_a_new_file_is_all_it_takes(tmp_path, monkeypatch):
  package = importlib.import_module('fedjax_pfl.algorithms')
  monkeypatch.setattr(package, '__path__', [*package.__path__, str(tmp_path)])
  (tmp_path / 'fednew.py').write_text('PRIVATE_LEAVES = ("head",)\n')
  try:
    assert 'fednew' in algorithms.available()
    assert algorithms.load('fednew').PRIVATE_LEAVES == ('head',)
  finally:
    sys.modules.pop('fedjax_pfl.algorithms.fednew', None)


def test_a_stage_begins_with_the_states_it_is_given():
  stage = Stage('only', 1, None)
  server, clients = object(), jnp.zeros(3)
  assert stage.initialize(server, clients, None) == (server, clients)
