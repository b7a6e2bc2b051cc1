"""Parity with the golden cases, number by number, in float64.

  pytest tests/golden_cases_test.py --goldens=DIR

Every case file of DIR and its subfolders is one test; every setting comes from
the file. tests.golden_cases has a function for an algorithm that needs more
than `check_method`; a case of an unknown one is skipped. With --short one case
of every loss and every partition is checked, and one of a large network.
"""

import importlib
import pkgutil

import golden_cases
import goldens
import pytest
from golden_cases.inputs import Case
from golden_cases.methods import check_method
from helpers import ALGORITHMS

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')


CHECKS = {}  # name of an algorithm in a case -> function that checks it
for module in pkgutil.iter_modules(golden_cases.__path__):
  family = importlib.import_module(f'golden_cases.{module.name}')
  CHECKS |= getattr(family, 'CHECKS', {})

# With --short. The others have the same losses in more rounds or other forms.
SHORT = (
  *('cnn_forward', 'fedprox_single_batch', 'fedlc_single_batch', 'superfed_mm'),
  *('fedrs_single_batch', 'moon_single_batch', 'pfedme', 'scaffold_partial'),
  *('fedconcat_id_distribution', 'kmeans_clusters', 'partition_noniid'),
  *('partition_classes', 'partition_dirichlet', 'apfl_single_step'),
  *('without_head_accuracy', 'superfed_eval', 'fedbabu_pfllib'),
  *('fair_objectives', 'fair_weights', 'fedfomo'),
  # Partial cohorts, a class that is missing, a last batch of one.
  *('few_fedala', 'few_fedas', 'few_feddbe', 'few_fedpac', 'few_fedproto'),
)


def pytest_generate_tests(metafunc):
  folder = metafunc.config.getoption('--goldens')
  reason = f'no golden cases in {folder}: give --goldens=DIR'
  none = pytest.param(None, id='none', marks=pytest.mark.skip(reason))
  cases = [
    pytest.param(path, id=name, marks=[pytest.mark.long] * (name not in SHORT))
    for name, path in goldens.discover(folder).items()
  ]
  metafunc.parametrize('path', cases or [none])


def test_case(path):
  case = Case(path)
  name = case['algorithm'].lower()
  if name in CHECKS:
    CHECKS[name](case)
  elif name in ALGORITHMS:
    check_method(case, name)
  else:
    pytest.skip(f'{case["case"]}: {case["algorithm"]} is not there yet')
  case.finish()
