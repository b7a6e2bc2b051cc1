"""The table of methods in docs/methods.md is what the command prints."""

import pytest

from experiments import methods


@pytest.mark.long
def test_page_has_the_table_of_today():
  _, table, _ = methods.split_page()
  assert table.strip() == methods.make_table(), 'experiments/methods.py --write'
