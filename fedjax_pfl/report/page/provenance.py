"""Settings of the runs, and the data and devices they ran on."""

import json
from collections.abc import Sequence
from typing import Any

from fedjax_pfl.report.page.groups import Group, common_settings
from fedjax_pfl.report.page.table_cells import (
  NONE,
  Cell,
  Column,
  Table,
  make_table,
)
from fedjax_pfl.runs.identity import flatten

ABSENT = '(absent)'
RECORDED = ('data', 'version', 'commit', 'jax', 'devices')


def differences(groups: Sequence[Group]) -> Table | None:
  """Return the fields in which the groups differ; None if there are none."""
  common = common_settings(groups)
  # Seeds are in the table of runs.
  flats = [flatten(group.runs[0].config) for group in groups]
  fields = dict.fromkeys(
    field for flat in flats for field in flat if field not in common
  )
  fields.pop('seed', None)
  if not fields:
    return None
  columns = [Column('Field', is_number=False)]
  columns += [Column(group.label, is_number=False) for group in groups]
  rows = [
    [Cell(field, field), *(_value(flat, field) for flat in flats)]
    for field in fields
  ]
  return make_table('Settings that differ', columns, rows)


def agreements(groups: Sequence[Group]) -> list[tuple[str, str]]:
  """Return the fields in which all runs agree, with their values."""
  return [
    (field, json.dumps(value))
    for field, value in sorted(common_settings(groups).items())
  ]


def runs(groups: Sequence[Group]) -> Table:
  """Return the directory, data and devices of every run."""
  columns = [Column('Run', is_number=False), Column('Seed')]
  columns += [Column(name.capitalize(), is_number=False) for name in RECORDED]
  rows = [
    [
      Cell(f'{run.path}', f'{run.path}', css=group.css),
      Cell(f'{run.config.get("seed", NONE)}', run.config.get('seed')),
      *(_recorded(name, run.record.get(name)) for name in RECORDED),
    ]
    for group in groups
    for run in group.runs
  ]
  return make_table('Runs', columns, rows)


def records(groups: Sequence[Group]) -> list[tuple[str, str]]:
  """Return config.json of every run as text."""
  return [
    (f'{run.path}', json.dumps(run.record, indent=2, ensure_ascii=False))
    for group in groups
    for run in group.runs
  ]


def _value(flat: dict[str, Any], field: str) -> Cell:
  words = json.dumps(flat[field]) if field in flat else ABSENT
  return Cell(words, words)


def _recorded(name: str, value: Any) -> Cell:
  if name == 'commit' and value:
    value = value[:10]  # in full in config.json below
  if isinstance(value, list):
    value = ', '.join(str(one) for one in value)
  return Cell(NONE) if value is None else Cell(f'{value}', f'{value}')
