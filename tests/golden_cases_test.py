"""Parity with the golden cases, number by number, in float64.

  pytest tests/golden_cases_test.py --goldens=DIR

Every case file of DIR and its subfolders is one test; every setting comes from
the file. How an algorithm is played stands in tests.golden_cases; a case whose
algorithm is not there yet is skipped by its name. With --short one case of
every loss and every partition is played, and one of a large network.
"""

import importlib
import pkgutil

import golden_cases
import goldens
import pytest

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')


def all_plays():
  """Return {name of an algorithm in a case: function that plays it}."""
  plays = {}
  for module in pkgutil.iter_modules(golden_cases.__path__):
    family = importlib.import_module(f'golden_cases.{module.name}')
    plays |= getattr(family, 'PLAYS', {})
  return plays


PLAYS = all_plays()


# With --short. Others play the same losses for more rounds, or in other forms.
SHORT = (
  *('cnn_forward', 'superfed_fedconcat/fedavg', 'fedprox_single_batch'),
  *('fedlc_single_batch', 'fedrs_single_batch', 'moon_single_batch'),
  *('superfed_single_batch', 'superfed_mm', 'apfl_single_step', 'pfedme'),
  *('scaffold', 'fedconcat_id_distribution', 'kmeans_clusters'),
  *('partition_noniid', 'partition_classes', 'partition_dirichlet'),
)


def with_marks(cases):
  """Return the paths of the cases, marked long unless in SHORT."""
  return [
    pytest.param(path, marks=[pytest.mark.long] * (name not in SHORT))
    for name, path in cases.items()
  ]


def pytest_generate_tests(metafunc):
  folder = metafunc.config.getoption('--goldens')
  cases = goldens.discover(folder)
  if not cases:
    reason = f'no golden cases in {folder}: give --goldens=DIR'
    cases = {'none': pytest.param(None, marks=pytest.mark.skip(reason))}
    metafunc.parametrize('path', list(cases.values()), ids=list(cases))
    return
  metafunc.parametrize('path', with_marks(cases), ids=list(cases))


def test_case(path):
  case = goldens.Case(path)
  play = PLAYS.get(case['algorithm'].lower())
  if play is None:
    pytest.skip(f'{case["case"]}: {case["algorithm"]} is not there yet')
  play(case)
