"""The tables of a partition: accuracies, and what they cost."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.evaluation.differences import Difference
from fedjax_pfl.leaderboard.entries import Entry, seed_means, worst_tenth
from fedjax_pfl.leaderboard.verdicts import (
  Board,
  baseline_name,
)
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

LOCAL = 'local_only'
SIGNS = {1: '▲ ', -1: '▼ ', 0: ''}


def overview(boards: Sequence[Board], css: Mapping[str, str]) -> Table:
  """Return a row for each method, with its mean in every partition."""
  columns = (METHOD, *(Column(one.partition, best='max') for one in boards))
  found = [{entry.method: entry for entry in one.entries} for one in boards]
  rows = [
    [
      _title(entry.method, boards[0], css),
      *(
        _overview_cell(board, entries.get(entry.method))
        for board, entries in zip(boards, found, strict=True)
      ),
    ]
    for entry in _by_accuracy(boards[0])
  ]
  notes = (
    'Test accuracy in percent. ▲ above FedAvg + fine-tuning, ▼ below it, '
    'where that is distinguishable.',
  )
  return make_table('After personalisation', columns, rows, notes)


def accuracy(board: Board, css: Mapping[str, str]) -> Table:
  """Return a row for each method, the highest first."""
  columns = (
    METHOD,
    Column('Before', 'lowest to highest seed', best='max'),
    Column('After', 'lowest to highest seed', best='max'),
    Column('Worst tenth', 'before'),
    Column('Worst tenth', 'after', best='max'),
    *(Column(f'− {baseline_name(base)}', 'points') for base in board.against),
  )
  rows = [
    [
      _name(board, entry, css),
      _mean(None if entry.is_reference else entry.before),
      _mean(None if entry.is_reference else entry.after),
      _worst(entry.before),
      _worst(None if entry.is_reference else entry.after),
      *(
        _difference(found.get(entry.method)) for found in board.against.values()
      ),
    ]
    for entry in _by_accuracy(board)
  ]
  notes = (
    'Before: the global model, or the method’s own view before a client '
    'adapts. A difference with its simultaneous 95 % interval.',
    *(
      f'{display_name(entry.method)} is a reference and no competitor: one '
      f'client has all data; {seed_means(entry.after).mean():.1f} % on the '
      'whole test set.'
      for entry in board.entries
      if entry.is_reference and entry.after is not None
    ),
  )
  return make_table('Accuracy, %', columns, rows, notes)


def costs(board: Board, css: Mapping[str, str]) -> Table:
  """Return what each method was given by validation, computed and sent."""
  columns = (
    METHOD,
    Column('Learning rate', 'by validation'),
    Column('View', 'by validation', is_number=False),
    Column('Validation', '%'),
    Column('Gradients', 'steps of all clients', best='min'),
    Column('Sent up', 'all rounds', best='min'),
    Column('Sent down', 'all rounds', best='min'),
    Column('Time', 'of a training', best='min'),
  )
  rows = [
    [
      _title(entry.method, board, css),
      *_choice(entry),
      *_costs(entry),
    ]
    for entry in _by_accuracy(board)
  ]
  notes = (
    'Gradients, bytes and time are of the rounds of one training; fine-tuning '
    'adds its epochs. Time: the median of the seeds, as measured; the first of '
    'runs that share a program compiles it.',
  )
  return make_table('Choice and cost', columns, rows, notes)


def _by_accuracy(board: Board) -> list[Entry]:
  """Return the entries: highest first, then those that are not compared."""

  def key(entry):
    if entry.after is None:
      return 2, 0.0
    return int(entry.is_reference), -float(seed_means(entry.after).mean())

  return sorted(board.entries, key=key)


def _overview_cell(board: Board, entry: Entry | None) -> Cell:
  """Return the mean, marked by the comparisons with both baselines."""
  if entry is None or entry.after is None or entry.is_reference:
    return Cell(NONE)
  mean = float(seed_means(entry.after).mean())
  first = next(iter(board.against.values())).get(entry.method)
  sign = '' if first is None else SIGNS[first.sign]
  return Cell(f'{sign}{mean:.2f}', mean, _local_mark(board, entry))


def _local_mark(board: Board, entry: Entry) -> tuple[str, ...]:
  """Return the mark of a method whose mean is below that of local-only."""
  found = board.against.get(LOCAL, {}).get(entry.method)
  if found is None or found.mean >= 0:
    return ()
  return (f'▼ below local-only{"" if found.sign else ", within noise"}',)


def _title(method: str, board: Board, css: Mapping[str, str]) -> Cell:
  is_baseline = method in board.against
  name = baseline_name(method) if is_baseline else display_name(method)
  return Cell(name, name, css=css[method])


def _name(board: Board, entry: Entry, css: Mapping[str, str]) -> Cell:
  """Return the name; below it what marks the method."""
  below = [*_local_mark(board, entry)]
  if entry.method in board.against:
    below.append('baseline')
  if entry.is_reference:
    below.append('reference')
  if entry.obstacle:
    below.append(entry.obstacle)
  return _title(entry.method, board, css)._replace(below=tuple(below))


def _mean(values: np.ndarray | None) -> Cell:
  if values is None:
    return Cell(NONE)
  means = seed_means(values)
  return number(
    means.mean(), '{:.2f}', (f'{means.min():.1f} to {means.max():.1f}',)
  )


def _worst(values: np.ndarray | None) -> Cell:
  return Cell(NONE) if values is None else number(worst_tenth(values))


def _difference(one: Difference | None) -> Cell:
  """Return the difference, its interval, and what it says."""
  if one is None:
    return Cell(NONE)
  words = f'{one.low:+.1f} to {one.high:+.1f}'
  return Cell(f'{SIGNS[one.sign]}{one.mean:+.2f}', one.mean, (words,))


def _choice(entry: Entry) -> list[Cell]:
  choice = entry.choice
  if choice is None:
    return [Cell(NONE)] * 3
  below = ('end of the grid',) * choice.is_edge
  return [
    Cell(f'{choice.rate:g}', choice.rate, below),
    Cell(choice.view, choice.view),
    number(choice.accuracy, '{:.1f}'),
  ]


def _costs(entry: Entry) -> list[Cell]:
  if entry.costs is None:
    return [Cell(NONE)] * 4
  return [
    number(entry.costs.gradients, '{:,.0f}'),
    size(entry.costs.bytes_up),
    size(entry.costs.bytes_down),
    duration(entry.costs.seconds),
  ]
