"""Tables of costs, of every client, of settings, data and devices."""

import json
import math
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report.page.groups import Group, common_settings
from fedjax_pfl.report.page.sortable_cells import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  duration,
  group_cell,
  number,
  size,
  table_of,
  word,
)

MAX_ROWS = 3000  # of clients: more make the page slow
ABSENT = '(absent)'
RECORDED = ('data', 'version', 'commit', 'jax', 'devices')


def cost(groups: Sequence[Group]) -> Table:
  """Return bytes sent, images per second and time of each group."""
  rows = []
  for group in groups:
    down, up = (_sent(group, f'bytes_{way}') for way in ('down', 'up'))
    rounds = group.first.result['rounds']
    seconds = np.mean([run.result['seconds'] for run in group.runs])
    row = {METHOD: group_cell(group)}
    row[Column('Rounds')] = number(rounds, '{:,}')
    row[Column('Images/s', 'median', best='max')] = _speed(group)
    row[Column('Sent down', 'all rounds', best='min')] = size(down)
    row[Column('Sent up', 'all rounds', best='min')] = size(up)
    row[Column('Both', 'a round', best='min')] = size(
      (down + up) / max(rounds, 1)
    )
    row[Column('Time', best='min')] = duration(seconds)
    rows.append(row)
  return table_of('Cost', rows)


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
    numbers = {
      Column('Images', 'training'): (run.clients.train_count, '{:,.0f}'),
      Column('Classes', 'training'): (classes, '{:.0f}'),
      Column('Before'): (before, '{:.1f}'),
      Column('After'): (after, '{:.1f}'),
      Column('Gain', 'points'): (after - before, '{:+.1f}'),
    }
    for at, client in enumerate(run.clients.ids):
      row = {METHOD: group_cell(group)}
      row[Column('Client')] = Cell(f'{client}', int(client))
      row[Column('Seed')] = Cell(f'{seed}', seed)
      for column, (values, form) in numbers.items():
        row[column] = number(values[at], form)
      rows.append(row)
  return table_of('Every client', rows)


def differences(groups: Sequence[Group]) -> Table | None:
  """Return the fields in which the groups differ; None if there are none."""
  common = {*common_settings(groups), 'seed'}  # seeds: in the table of runs
  flats = {group.label: group.settings for group in groups}
  names = dict.fromkeys(name for flat in flats.values() for name in flat)
  rows = []
  for field in names:
    if field not in common:
      row = {Column('Field', is_number=False): word(field)}
      for label, flat in flats.items():
        value = json.dumps(flat[field]) if field in flat else ABSENT
        row[Column(label, is_number=False)] = word(value)
      rows.append(row)
  return table_of('Settings that differ', rows)


def runs(groups: Sequence[Group]) -> Table:
  """Return the directory, data and devices of every run."""
  rows = []
  for group in groups:
    for run in group.runs:
      seed = Cell(f'{run.config.get("seed", NONE)}', run.seed)
      path = word(run.path)._replace(css=group.css)
      row = {Column('Run', is_number=False): path}
      row[Column('Seed')] = seed
      for name in RECORDED:
        value = run.record.get(name)
        if name == 'commit' and value:
          value = value[:10]  # in full in config.json below
        if isinstance(value, list):
          value = ', '.join(map(str, value))
        row[Column(name.capitalize(), is_number=False)] = word(value)
      rows.append(row)
  return table_of('Runs', rows)


def _sent(group: Group, name: str) -> float:
  """Return the bytes of a run, the mean over seeds; NaN: not recorded."""
  totals = [
    np.sum([line[name] for line in run.metrics if name in line] or [math.nan])
    for run in group.runs
  ]
  return float(np.mean(totals))


def _speed(group: Group) -> Cell:
  speeds = [run.curve('images_per_second')[1] for run in group.runs]
  median = np.median(np.concatenate(speeds)) if len(speeds[0]) else math.nan
  return number(median, '{:,.0f}')
