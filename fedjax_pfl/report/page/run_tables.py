"""Tables of costs, of every client, of settings, data and devices."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_pfl.report.page.groups import Group, common_settings
from fedjax_pfl.report.page.tables import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  duration,
  group_cell,
  make_table,
  number,
  size,
  word,
)

MAX_ROWS = 3000  # of clients: more make the page slow
ABSENT = '(absent)'
RECORDED = ('data', 'version', 'commit', 'jax', 'devices')
COST = (
  METHOD,
  Column('Rounds'),
  Column('Images/s', 'median', best='max'),
  Column('Sent down', 'all rounds', best='min'),
  Column('Sent up', 'all rounds', best='min'),
  Column('Both', 'a round', best='min'),
  Column('Time', best='min'),
)
CLIENT = (
  METHOD,
  Column('Client'),
  Column('Seed'),
  Column('Images', 'training'),
  Column('Classes', 'training'),
  Column('Before'),
  Column('After'),
  Column('Gain', 'points'),
)


def cost(groups: Sequence[Group]) -> Table:
  """Return bytes sent, images per second and time of each group."""
  rows = []
  for group in groups:
    down, up = (_sent(group, f'bytes_{way}') for way in ('down', 'up'))
    rounds = group.first.result['rounds']
    both = (down + up) / max(rounds, 1)
    seconds = np.mean([run.result['seconds'] for run in group.runs])
    cells = number(rounds, '{:,}'), number(_speed(group), '{:,.0f}')
    cells += size(down), size(up), size(both), duration(seconds)
    rows.append([group_cell(group), *cells])
  return make_table('Cost', COST, rows)


def clients(groups: Sequence[Group]) -> Table | None:
  """Return a row for every client of every run; None if there are too many."""
  pairs = [(group, run) for group in groups for run in group.runs]
  if sum(len(run.clients.ids) for _, run in pairs) > MAX_ROWS:
    return None
  rows = []
  for group, run in pairs:
    after = run.accuracy(run.after)
    before = run.accuracy(run.before) if run.before else after * np.nan
    held = run.clients.train_classes
    classes = after * np.nan if held is None else (held > 0).sum(1)
    seed = run.config.get('seed', NONE)
    columns = (
      *((run.clients.train_count, '{:,.0f}'), (classes, '{:.0f}')),
      *((before, '{:.1f}'), (after, '{:.1f}'), (after - before, '{:+.1f}')),
    )
    rows += [
      [
        *(group_cell(group), Cell(f'{one}', int(one)), Cell(f'{seed}', seed)),
        *(number(values[at], form) for values, form in columns),
      ]
      for at, one in enumerate(run.clients.ids)
    ]
  return make_table('Every client', CLIENT, rows)


def differences(groups: Sequence[Group]) -> Table | None:
  """Return the fields in which the groups differ; None if there are none."""
  common = {*common_settings(groups), 'seed'}  # seeds: in the table of runs
  flats = [group.settings for group in groups]
  names = ['Field', *(group.label for group in groups)]
  columns = [Column(name, is_number=False) for name in names]
  rows = [
    [
      word(field),
      *(
        word(json.dumps(flat[field]) if field in flat else ABSENT)
        for flat in flats
      ),
    ]
    for field in dict.fromkeys(name for flat in flats for name in flat)
    if field not in common
  ]
  return make_table('Settings that differ', columns, rows) if rows else None


def runs(groups: Sequence[Group]) -> Table:
  """Return the directory, data and devices of every run."""
  columns = [Column('Run', is_number=False), Column('Seed')]
  columns += [Column(name.capitalize(), is_number=False) for name in RECORDED]
  rows = [
    [
      word(run.path)._replace(css=group.css),
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
  return word(value)


def _sent(group: Group, name: str) -> float:
  """Return the bytes of a run, the mean over seeds; NaN: not recorded."""
  totals = [
    np.sum([line[name] for line in run.metrics if name in line] or [math.nan])
    for run in group.runs
  ]
  return float(np.mean(totals))


def _speed(group: Group) -> float:
  speeds = [run.curve('images_per_second')[1] for run in group.runs]
  return np.median(np.concatenate(speeds)) if len(speeds[0]) else math.nan
