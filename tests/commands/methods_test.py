"""The tables of methods in the docs are what the command prints."""

import pytest

from experiments import methods
from fedjax_pfl.algorithms import available
from fedjax_pfl.analysis.method_table import method_table, new_client_table

COMMAND = 'experiments/methods.py --write'


@pytest.mark.long
def test_the_docs_have_the_current_table():
  _, table, _ = methods.split_file(methods.METHODS)
  origins = methods.golden_origins(available())
  assert table.strip() == method_table(origins), COMMAND


def test_the_docs_say_what_a_new_client_does():
  _, table, _ = methods.split_file(methods.NEW_CLIENTS)
  assert table.strip() == new_client_table(), COMMAND


def test_golden_cases_are_counted_by_the_code_that_made_them():
  origins = methods.golden_origins(available())
  assert origins['fedbabu'] == 'FedBABU 2' and origins['centralized'] == 'none'
  assert origins['apfl'] == 'independent 4, SuPerFed 1'
