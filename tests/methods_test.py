"""The table of methods in README is what the command prints."""

from experiments import methods


def test_readme_has_the_table_of_today():
  _, table, _ = methods.split_readme()
  assert table.strip() == methods.make_table(), 'experiments/methods.py --write'
