"""Tables of costs, of every client, of settings, data and devices."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_pfl.report.finished_runs import first_and_after
from fedjax_pfl.report.page.groups import Group, common_settings
from fedjax_pfl.report.page.summary_tables import group_cell
from fedjax_pfl.report.page.tables import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  duration,
  make_table,
  number,
  size,
)

MAX_ROWS = 3000  # of clients: more make the page slow
ABSENT = '(absent)'
RECORDED = ('data', 'version', 'commit', 'jax', 'devices')


def cost(groups: Sequence[Group]) -> Table:
  """Return bytes sent, images per second and time of each group."""
  columns = (
    METHOD,
    Column('Rounds'),
    Column('Images/s', 'median', best='max'),
    Column('Sent down', 'all rounds', best='min'),
    Column('Sent up', 'all rounds', best='min'),
    Column('Both', 'a round', best='min'),
    Column('Time', best='min'),
  )
  rows = []
  for group in groups:
    down, up = (_sent(group, f'bytes_{way}') for way in ('down', 'up'))
    rounds = group.first.result['rounds']
    rows.append(
      [
        group_cell(group),
        Cell(f'{rounds:,}', rounds),
        number(_speed(group), '{:,.0f}'),
        *(size(one) for one in (down, up, (down + up) / max(rounds, 1))),
        duration(np.mean([run.result['seconds'] for run in group.runs])),
      ]
    )
  note = (
    'Bytes are counted in the messages of all clients that took part. Images '
    'of local training a second, and the time, are those of the devices named '
    'below.'
  )
  return make_table('Cost', columns, rows, (note,))


def clients(groups: Sequence[Group]) -> Table | None:
  """Return a row for every client of every run; None if there are too many."""
  number_of_rows = sum(len(run.clients.ids) for g in groups for run in g.runs)
  if number_of_rows > MAX_ROWS:
    return None
  columns = (
    METHOD,
    Column('Client'),
    Column('Seed'),
    Column('Images', 'training'),
    Column('Classes', 'training'),
    Column('Before'),
    Column('After'),
    Column('Gain', 'points'),
  )
  rows = []
  for group in groups:
    for run in group.runs:
      first, last = first_and_after(run.views, run.result)
      after = run.accuracy(last)
      before = run.accuracy(first) if first else after * np.nan
      held = run.clients.train_classes
      classes = after * np.nan if held is None else (held > 0).sum(1)
      seed = run.config.get('seed', NONE)
      rows += [
        [
          group_cell(group),
          Cell(f'{one}', int(one)),
          Cell(f'{seed}', seed),
          number(run.clients.train_count[at], '{:,.0f}'),
          number(classes[at], '{:.0f}'),
          number(before[at], '{:.1f}'),
          number(after[at], '{:.1f}'),
          number(after[at] - before[at], '{:+.1f}'),
        ]
        for at, one in enumerate(run.clients.ids)
      ]
  return make_table('Every client', columns, rows)


def differences(groups: Sequence[Group]) -> Table | None:
  """Return the fields in which the groups differ; None if there are none."""
  common = common_settings(groups)
  flats = [group.settings for group in groups]
  fields = dict.fromkeys(
    field
    for flat in flats
    for field in flat
    if field not in common and field != 'seed'  # seeds: in the table of runs
  )
  columns = [Column('Field', is_number=False)]
  columns += [Column(group.label, is_number=False) for group in groups]
  rows = []
  for field in fields:
    words = [
      json.dumps(flat[field]) if field in flat else ABSENT for flat in flats
    ]
    rows.append([Cell(one, one) for one in (field, *words)])
  return make_table('Settings that differ', columns, rows) if rows else None


def runs(groups: Sequence[Group]) -> Table:
  """Return the directory, data and devices of every run."""
  columns = [Column('Run', is_number=False), Column('Seed')]
  columns += [Column(name.capitalize(), is_number=False) for name in RECORDED]
  rows = [
    [
      Cell(f'{run.path}', f'{run.path}', css=group.css),
      Cell(f'{run.config.get("seed", NONE)}', run.seed),
      *(_recorded(name, run.record.get(name)) for name in RECORDED),
    ]
    for group in groups
    for run in group.runs
  ]
  return make_table('Runs', columns, rows)


def _recorded(name: str, value: Any) -> Cell:
  if name == 'commit' and value:
    value = value[:10]  # in full in config.json below
  if isinstance(value, list):
    value = ', '.join(str(item) for item in value)
  return Cell(NONE) if value is None else Cell(f'{value}', f'{value}')


def _sent(group: Group, name: str) -> float:
  """Return the bytes of a run, the mean over seeds; NaN: not recorded."""
  totals = [
    np.sum([line[name] for line in run.metrics if name in line] or [math.nan])
    for run in group.runs
  ]
  return float(np.mean(totals))


def _speed(group: Group) -> float:
  speeds = [run.curve('images_per_second')[1] for run in group.runs]
  return (
    float(np.median(np.concatenate(speeds))) if len(speeds[0]) else math.nan
  )
