"""Parity with the golden cases, number by number, in float64.

  pytest tests/parity_test.py --goldens=DIR

Every case file of DIR and its subfolders is one test; every setting comes from
the file. How an algorithm is played stands in tests/players; a case whose
algorithm is not there yet is skipped by its name. With --short only one case
of a large network is played.
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


# Others of their method play the same steps, on fewer or smaller programs.
SLOW = ('apfl', 'apfl_sequential', 'fedconcat_warm', 'superfed_lm')


def with_marks(cases):
  """Return the cases; long: of large networks but the first, and SLOW."""
  params, is_first = [], True
  for path in cases:
    model = goldens.Case(path).settings.get('model', 'narrow')
    is_large = not model.startswith('narrow')
    is_long = (is_large and not is_first) or path.stem in SLOW
    is_first = is_first and not is_large
    params.append(pytest.param(path, marks=[pytest.mark.long] * is_long))
  return params


def pytest_generate_tests(metafunc):
  folder = metafunc.config.getoption('--goldens')
  cases = goldens.discover(folder)
  if not cases:
    reason = f'no golden cases in {folder}: give --goldens=DIR'
    cases = {'none': pytest.param(None, marks=pytest.mark.skip(reason))}
    metafunc.parametrize('path', list(cases.values()), ids=list(cases))
    return
  params = with_marks(cases.values())
  metafunc.parametrize('path', params, ids=list(cases))


def test_case(path):
  case = goldens.Case(path)
  play = PLAYS.get(case['algorithm'].lower())
  if play is None:
    pytest.skip(f'{case["case"]}: {case["algorithm"]} is not there yet')
  play(case)
