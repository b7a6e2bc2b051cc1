"""The table of methods in the docs is what the command prints."""

import pytest

from experiments import methods
from fedjax_pfl.analysis.method_table import method_table


@pytest.mark.long
def test_the_docs_have_the_current_table():
  _, table, _ = methods.split_file()
  assert table.strip() == method_table(), 'experiments/methods.py --write'
