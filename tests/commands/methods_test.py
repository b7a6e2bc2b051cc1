"""The table of methods in README is what the command prints."""

import pytest

from experiments import methods


@pytest.mark.long
def test_readme_has_the_table_of_today():
  _, table, _ = methods.split_readme()
  assert table.strip() == methods.make_table(), 'experiments/methods.py --write'
