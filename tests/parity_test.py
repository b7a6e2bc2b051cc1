"""Parity with the golden cases, number by number, in float64.

  pytest tests/parity_test.py --goldens=DIR

Every case file of DIR and its subfolders is one test; every setting comes from
the file. How an algorithm is played stands in tests/players; a case whose
algorithm is not there yet is skipped by its name. With --short only the first
case of each file of players is played.
"""

import importlib
import pkgutil

import goldens
import players
import pytest

pytestmark = pytest.mark.usefixtures('float64')


def all_plays():
  """Return {name of an algorithm in a case: function that plays it}."""
  plays = {}
  for module in pkgutil.iter_modules(players.__path__):
    family = importlib.import_module(f'players.{module.name}')
    plays |= getattr(family, 'PLAYS', {})
  return plays


PLAYS = all_plays()


def one_of_each_family(cases):
  """Return the cases, all but the first of every file of players long."""
  families, params = set(), []
  for path in cases:
    play = PLAYS.get(goldens.Case(path)['algorithm'].lower())
    family = play and play.__module__
    marks = [pytest.mark.long] if family in families else []
    families.add(family)
    params.append(pytest.param(path, marks=marks))
  return params


def pytest_generate_tests(metafunc):
  folder = metafunc.config.getoption('--goldens')
  cases = goldens.discover(folder)
  if not cases:
    reason = f'no golden cases in {folder}: give --goldens=DIR'
    cases = {'none': pytest.param(None, marks=pytest.mark.skip(reason))}
    metafunc.parametrize('path', list(cases.values()), ids=list(cases))
    return
  params = one_of_each_family(cases.values())
  metafunc.parametrize('path', params, ids=list(cases))


def test_case(path):
  case = goldens.Case(path)
  play = PLAYS.get(case['algorithm'].lower())
  if play is None:
    pytest.skip(f'{case["case"]}: {case["algorithm"]} is not there yet')
  play(case)
