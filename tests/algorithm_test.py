"""Methods are found by the name of their file."""

import importlib
import sys

import jax.numpy as jnp
import pytest

from fedjax_pfl import algorithm
from fedjax_pfl.errors import BadInput


def test_load_returns_the_file_of_that_name():
  names = algorithm.available()
  assert len(names) >= 2 and list(names) == sorted(names)
  for name in names:
    module = algorithm.load(name)
    assert module.__name__ == f'fedjax_pfl.algorithms.{name}'


def test_unknown_method_names_the_choices():
  with pytest.raises(BadInput) as error:
    algorithm.load('nope')
  sentence = str(error.value)
  assert sentence.startswith("algorithm: got 'nope', expected the name of a")
  assert all(name in sentence for name in algorithm.available())
  assert 'Likely cause: a typing error' in sentence


def test_near_miss_is_answered_with_a_suggestion():
  with pytest.raises(BadInput, match=r'did you mean fedbabu\?'):
    algorithm.load('fedbabbu')


def test_a_new_file_is_all_it_takes(tmp_path, monkeypatch):
  package = importlib.import_module('fedjax_pfl.algorithms')
  monkeypatch.setattr(package, '__path__', [*package.__path__, str(tmp_path)])
  (tmp_path / 'fednew.py').write_text('PRIVATE = ("head",)\n')
  try:
    assert 'fednew' in algorithm.available()
    assert algorithm.load('fednew').PRIVATE == ('head',)
  finally:
    sys.modules.pop('fedjax_pfl.algorithms.fednew', None)


def test_stage_enters_with_the_states_it_is_given():
  stage = algorithm.Stage('only', 1, None)
  server, clients = object(), jnp.zeros(3)
  assert stage.enter(server, clients, None) == (server, clients)
