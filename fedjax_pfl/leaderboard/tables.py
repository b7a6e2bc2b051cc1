"""The tables of a partition: accuracies, and what they cost."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedjax_pfl.leaderboard.board import ABOVE, BELOW, OPEN, baseline_name
from fedjax_pfl.leaderboard.rows import BASELINE, REFERENCE, Row
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
from fedjax_pfl.report.styles import display_name

SIGNS = {ABOVE: '▲ ', BELOW: '▼ ', OPEN: ''}
VIEWS = 'before', 'after'
Css = Mapping[str, str]  # {method: class of its colour}


def overview(partitions: Mapping[str, Sequence[Row]], css: Css) -> Table:
  """Return a row for each method, with its mean in every partition."""
  first, *_ = partitions.values()
  columns = METHOD, *(Column(name, best='max') for name in partitions)
  found = [{row['method']: row for row in rows} for rows in partitions.values()]
  shown = [
    [
      _name(row, css),
      *(_overview_cell(rows.get(row['method'])) for rows in found),
    ]
    for row in first
  ]
  note = (
    'Test accuracy in percent. ▲ above FedAvg + fine-tuning, ▼ below it, '
    'where that is distinguishable.'
  )
  return make_table('After personalisation', columns, shown, (note,))


def _overview_cell(row: Row | None) -> Cell:
  """Return the mean, marked by the comparisons with both baselines."""
  if row is None or row['after'] is None or row['kind'] == REFERENCE:
    return Cell(NONE)
  sign = SIGNS.get(row['vs_fedavg_verdict'], '')
  return Cell(f'{sign}{row["after"]:.2f}', row['after'], _below_local(row))


def accuracy(rows: Sequence[Row], css: Css) -> Table:
  """Return a row for each method, the highest first."""
  seeds = 'lowest to highest seed'
  verdicts = [name for name in rows[0] if name.endswith('_verdict')]
  baselines = [name[len('vs_') : -len('_verdict')] for name in verdicts]
  columns = (
    METHOD,
    *(Column(view.capitalize(), seeds, best='max') for view in VIEWS),
    Column('Worst tenth', 'before'),
    Column('Worst tenth', 'after', best='max'),
    *(Column(f'− {baseline_name(base)}', 'points') for base in baselines),
  )
  notes = (
    'Before: the global model, or the method’s own view before a client '
    'adapts. A difference with its simultaneous 95 % interval.',
    *(
      f'{display_name(row["method"])} is a reference and no competitor: one '
      f'client has all data; {row["after"]:.1f} % on the whole test set.'
      for row in rows
      if row['kind'] == REFERENCE and row['after'] is not None
    ),
  )
  shown = []
  for row in rows:
    marks = [row['kind']] * (row['kind'] in (BASELINE, REFERENCE))
    marks += [row['obstacle']] * bool(row['obstacle'])
    name = _name(row, css)._replace(below=(*_below_local(row), *marks))
    compared = row if row['kind'] != REFERENCE else dict.fromkeys(row)
    cells = [_mean(compared, view) for view in VIEWS]
    cells += [_worst(compared, view) for view in VIEWS]
    cells += [_difference(compared, base) for base in baselines]
    shown.append([name, *cells])
  return make_table('Accuracy, %', columns, shown, notes)


def _mean(row: Row, view: str) -> Cell:
  if row[view] is None:
    return Cell(NONE)
  low, high = row[f'{view}_lowest_seed'], row[f'{view}_highest_seed']
  return number(row[view], '{:.2f}', (f'{low:.1f} to {high:.1f}',))


def _worst(row: Row, view: str) -> Cell:
  worst = row[f'{view}_worst_tenth']
  return Cell(NONE) if worst is None else number(worst)


def _difference(row: Row, baseline: str) -> Cell:
  """Return the difference, its interval, and what it says."""
  names = ('mean', 'low', 'high', 'verdict')
  mean, low, high, verdict = (row[f'vs_{baseline}_{name}'] for name in names)
  if mean is None:
    return Cell(NONE)
  words = f'{low:+.1f} to {high:+.1f}'
  return Cell(f'{SIGNS[verdict]}{mean:+.2f}', mean, (words,))


def _below_local(row: Row) -> tuple[str, ...]:
  """Return the mark of a method whose mean is below that of local-only."""
  mean, verdict = row['vs_local_only_mean'], row['vs_local_only_verdict']
  if mean is None or mean >= 0:
    return ()
  return (f'▼ below local-only{", within noise" * (verdict == OPEN)}',)


def _name(row: Row, css: Css) -> Cell:
  name_of = baseline_name if row['kind'] == BASELINE else display_name
  name = name_of(row['method'])
  return Cell(name, name, css=css[row['method']])


# ---- Choice and cost ---------------------------------------------------------

COSTS = {
  'learning_rate': Column('Learning rate', 'by validation'),
  'view': Column('View', 'by validation', is_number=False),
  'validation': Column('Validation', '%'),
  'gradients': Column('Gradients', 'steps of all clients', best='min'),
  'bytes_up': Column('Sent up', 'all rounds', best='min'),
  'bytes_down': Column('Sent down', 'all rounds', best='min'),
  'seconds': Column('Time', 'of a training', best='min'),
}
CELLS: dict[str, Callable[[Any], Cell]] = {
  'learning_rate': lambda rate: Cell(f'{rate:g}', rate),
  'view': lambda view: Cell(view, view),
  'validation': lambda accuracy: number(accuracy, '{:.1f}'),
  'gradients': lambda steps: number(steps, '{:,.0f}'),
  'bytes_up': size,
  'bytes_down': size,
  'seconds': duration,
}


def costs(rows: Sequence[Row], css: Css) -> Table:
  """Return what each method was given by validation, computed and sent."""
  shown = []
  for row in rows:
    cells = {
      name: Cell(NONE) if row[name] is None else CELLS[name](row[name])
      for name in COSTS
    }
    if row['is_end_of_grid']:
      rate = cells['learning_rate']
      cells['learning_rate'] = rate._replace(below=('end of the grid',))
    shown.append([_name(row, css), *cells.values()])
  note = (
    'Gradients, bytes and time are of the rounds of one training; fine-tuning '
    'adds its epochs. Time: the median of the seeds, as measured; the first of '
    'runs that share a program compiles it.'
  )
  columns = METHOD, *COSTS.values()
  return make_table('Choice and cost', columns, shown, (note,))
