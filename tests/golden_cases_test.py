"""Parity with the golden cases, number by number, in float64.

  pytest tests/golden_cases_test.py --goldens=DIR

Every case file of DIR and its subfolders is one test; every setting comes from
the file. tests.golden_cases has a function for every algorithm; a case of an
unknown algorithm is skipped. With --short one case of every loss and every
partition is checked, and one of a large network.
"""

import importlib
import pkgutil

import golden_cases
import goldens
import pytest

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')


def all_checks():
  """Return {name of an algorithm in a case: function that checks it}."""
  checks = {}
  for module in pkgutil.iter_modules(golden_cases.__path__):
    family = importlib.import_module(f'golden_cases.{module.name}')
    checks |= getattr(family, 'CHECKS', {})
  return checks


CHECKS = all_checks()


# With --short. The others have the same losses in more rounds or other forms.
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
  check = CHECKS.get(case['algorithm'].lower())
  if check is None:
    pytest.skip(f'{case["case"]}: {case["algorithm"]} is not there yet')
  check(case)
