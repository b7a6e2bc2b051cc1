"""Tables of communication, speed and time, and of every client."""

import math
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report import finished_runs
from fedjax_pfl.report.page.groups import Group
from fedjax_pfl.report.page.table_cells import (
  NONE,
  Cell,
  Column,
  Table,
  duration,
  make_table,
  number,
  size,
)
from fedjax_pfl.report.page.tables import METHOD, name_cell

MAX_ROWS = 3000  # of clients: more make the page slow


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
    rounds = group.runs[0].result['rounds']
    seconds = np.mean([run.result['seconds'] for run in group.runs])
    rows.append(
      [
        name_cell(group),
        Cell(f'{rounds:,}', rounds),
        number(_speed(group), '{:,.0f}'),
        *(size(one) for one in (down, up, (down + up) / max(rounds, 1))),
        duration(seconds),
      ]
    )
  notes = (
    'Bytes are counted in the messages of all clients that took part. Images '
    'of local training a second, and the time, are those of the devices named '
    'below.',
  )
  return make_table('Cost', columns, rows, notes)


def clients(groups: Sequence[Group]) -> Table | None:
  """Return a row for every client of every run; None if there are too many."""
  runs = [(group, run) for group in groups for run in group.runs]
  if sum(len(run.clients.ids) for _, run in runs) > MAX_ROWS:
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
  rows = [row for group, run in runs for row in _client_rows(group, run)]
  return make_table('Every client', columns, rows)


def _sent(group: Group, name: str) -> float:
  """Return the bytes of a run, the mean over seeds; NaN: not recorded."""
  totals = [
    np.sum([line[name] for line in run.metrics if name in line] or [np.nan])
    for run in group.runs
  ]
  return float(np.mean(totals))


def _speed(group: Group) -> float:
  name = 'images_per_second'
  speeds = [finished_runs.curve(run.metrics, name)[1] for run in group.runs]
  return float(np.median(np.concatenate(speeds))) if len(speeds[0]) else np.nan


def _client_rows(
  group: Group, run: finished_runs.FinishedRun
) -> list[list[Cell]]:
  first, last = finished_runs.before_and_after(run)
  after = finished_runs.accuracy(run, last)
  before = (
    after * np.nan if first is None else finished_runs.accuracy(run, first)
  )
  counts = run.clients.train_classes
  seed = run.config.get('seed', NONE)
  return [
    [
      name_cell(group),
      Cell(f'{one}', int(one)),
      Cell(f'{seed}', seed),
      number(run.clients.train_count[at], '{:,.0f}'),
      number(math.nan if counts is None else (counts[at] > 0).sum(), '{:.0f}'),
      number(before[at], '{:.1f}'),
      number(after[at], '{:.1f}'),
      number(after[at] - before[at], '{:+.1f}'),
    ]
    for at, one in enumerate(run.clients.ids)
  ]
