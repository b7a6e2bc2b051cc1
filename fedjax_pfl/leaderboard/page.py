"""The page of a leaderboard: verdicts, tables and intervals in one HTML file.

Its style, its tables and its script are those of the report's page.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fedjax_pfl.leaderboard.board import (
  ABOVE,
  BASELINE,
  BELOW,
  OPEN,
  REFERENCE,
  Board,
  Row,
  baseline_name,
  compared_with,
  sentences,
)
from fedjax_pfl.leaderboard.form import BASELINES, Form
from fedjax_pfl.report.charts import rows as charts
from fedjax_pfl.report.charts.svg import Panel
from fedjax_pfl.report.page.render import DATASETS, load_template
from fedjax_pfl.report.page.sortable_cells import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  duration,
  number,
  size,
  table_of,
  word,
)
from fedjax_pfl.report.styles import display_name, style_of

TEMPLATE = 'leaderboard.html.jinja'
SIGNS = {ABOVE: '▲ ', BELOW: '▼ ', OPEN: '', None: ''}


def _as(form: str):
  return lambda value: number(value, form)


# What a method was given, computed and sent: the column, and a value's cell.
COSTS = {
  'learning_rate': (Column('Learning rate', 'by validation'), _as('{:g}')),
  'view': (Column('View', 'by validation', is_number=False), word),
  'validation': (Column('Validation', '%'), _as('{:.1f}')),
  'gradients': (
    Column('Gradients', 'steps of all clients', best='min'),
    _as('{:,.0f}'),
  ),
  'bytes_up': (Column('Sent up', 'all rounds', best='min'), size),
  'bytes_down': (Column('Sent down', 'all rounds', best='min'), size),
  'seconds': (Column('Time', 'of a training', best='min'), duration),
}
MEANS = (
  'Test accuracy in percent. ▲ above FedAvg + fine-tuning, ▼ below it, where '
  'that is distinguishable.'
)
VIEWS = (
  'Before: the global model, or the method’s own view before a client adapts. '
  'A difference with its 95 % interval over seeds, '
  'of this comparison alone.'
)
OF_COSTS = (
  'Gradients and bytes are of the rounds of one training; fine-tuning adds its '
  'epochs. Time is of the whole training with its evaluations, fine-tuning '
  'included: the median of the seeds, as measured; the first of runs that '
  'share a program compiles it.'
)

Css = Mapping[str, str]  # {method: class of its colour}


def render(
  form: Form, boards: Sequence[Board], changes: Sequence[str] = ()
) -> str:
  """Return the page; `changes` are verdicts that other seeds do not repeat."""
  css = {method: f'c{place}' for place, method in enumerate(form.methods)}
  dataset = form.base['dataset']
  boards = [one._replace(rows=ranked(one.rows)) for one in boards]
  return load_template(TEMPLATE, pathlib.Path(__file__).parent).render(
    title=f'Leaderboard on {DATASETS.get(dataset, dataset)}',
    lead=_lead(form, boards),
    facts=_facts(form),
    methods={css[method]: style_of(method) for method in form.methods},
    overview=_overview(boards, css),
    boards=[_section(board, css) for board in boards],
    protocol=_protocol(form),
    changes=changes,
  )


def ranked(rows: Sequence[Row]) -> list[Row]:
  """Return the highest first, then those that are not compared."""

  def key(row):
    after = row['after']
    return after is None, row['kind'] == REFERENCE, -(after or 0.0)

  return sorted(rows, key=key)


def _section(board: Board, css: Css) -> dict[str, Any]:
  return {
    'title': board.partition,
    'sentences': sentences(board),
    'accuracy': _accuracy(board.rows, css),
    'costs': _costs(board.rows, css),
    'charts': [
      Panel(f'Minus {baseline_name(base)}', plot(base, board.rows, css))
      for base in BASELINES
    ],
  }


def _lead(form: Form, boards: Sequence[Board]) -> str:
  """Return how many methods are distinguishably above each baseline.

  And what is not trained yet.
  """
  parts = []
  for base in BASELINES:
    words = []
    for board in boards:
      rows = compared_with(base, board.rows)
      above = sum(row[f'vs_{base}_verdict'] == ABOVE for row in rows)
      words.append(f'{above} of {len(rows)} at {board.partition}')
    parts.append(f'above {baseline_name(base)}: {", ".join(words)}')
  text = f'Methods that are distinguishably {"; ".join(parts)}.'
  done = {board.partition: len(board.rows) for board in boards}
  missing = [
    f'{name} has {done.get(name, 0)} of {len(form.methods)} methods'
    for name in form.partitions
    if done.get(name, 0) < len(form.methods)
  ]
  return f'{text} Not finished: {"; ".join(missing)}.' if missing else text


def _facts(form: Form) -> list[tuple[str, Any]]:
  base = form.base
  return [
    ('model', base['model']),
    ('clients', base['num_clients']),
    ('client fraction', base['client_fraction']),
    ('rounds', base['rounds']),
    ('local epochs', base['local_epochs']),
    ('learning rates', ', '.join(f'{rate:g}' for rate in form.rates)),
    ('seeds', ', '.join(map(str, form.seeds))),
    ('trainings', form.num_trainings),
  ]


def _protocol(form: Form) -> list[str]:
  base, epochs = form.base, form.base['finetune']['epochs']
  tuning = ', '.join(map(str, form.seeds[: form.tuning_seeds]))
  return [
    f'Every method has {base["rounds"]} rounds of the same cohorts, and a '
    f'client goes {base["local_epochs"]} times over its data in a round. A '
    'method with two models does so with each, so gradients are not equal: '
    'the table of costs has them. Local only has as many epochs as a client '
    'of the others trains, on average, and fine-tunes at most.',
    f'{base["validation_fraction"]:.0%} of the training examples of each '
    f'client are kept for choosing. On those of the seeds {tuning} each method '
    'gets its learning rate, also that of its fine-tuning, and the epochs of '
    f'fine-tuning ({" or ".join(map(str, epochs))}) or the mixture. Its other '
    'hyperparameters have their defaults. No test reaches a choice, and '
    'nothing is trained again with the validation examples.',
    'Numbers are test accuracies of the last round: means over clients, then '
    'over seeds. A difference is paired by seed (Student). It is '
    'distinguishable if p, by Holm over all comparisons with both baselines in '
    'a partition, is below 0.05; its interval is of this comparison alone. '
    'The worst tenth is shown where each client has 50 tests. '
    'The choice of the learning rate is not covered; other seeds repeat it.',
  ]


# ---- Tables ------------------------------------------------------------------


def _overview(boards: Sequence[Board], css: Css) -> Table:
  """Return a row for each method, with its mean in every partition."""
  found = {
    board.partition: {row['method']: row for row in board.rows}
    for board in boards
  }
  rows = []
  for first in boards[0].rows:
    cells = {METHOD: _name(first, css)}
    for partition, known in found.items():
      row, cell = known.get(first['method']), Cell(NONE)
      if row and row['after'] is not None and row['kind'] != REFERENCE:
        words = f'{SIGNS[row["vs_fedavg_verdict"]]}{row["after"]:.2f}'
        cell = Cell(words, row['after'], _below_local(row))
      cells[Column(partition, best='max')] = cell
    rows.append(cells)
  return table_of('After personalisation', rows, [MEANS])


def _accuracy(rows: Sequence[Row], css: Css) -> Table:
  """Return a row for each method, the highest first."""
  shown, notes = [], [VIEWS]
  for row in rows:
    name = _name(row, css)
    marks = [row['kind']] * (row['kind'] in (BASELINE, REFERENCE))
    marks += [row['obstacle']] * bool(row['obstacle'])
    cells = {METHOD: name._replace(below=(*_below_local(row), *marks))}
    if row['kind'] == REFERENCE:
      if row['after'] is not None:
        notes.append(
          f'{display_name(row["method"])} is a reference and no competitor: '
          f'one client has all data; {row["after"]:.1f} % on the whole test '
          'set.'
        )
      row = dict.fromkeys(row)
    for view in ('before', 'after'):
      low, high = row[f'{view}_lowest_seed'], row[f'{view}_highest_seed']
      below = () if low is None else (f'{low:.1f} to {high:.1f}',)
      column = Column(view.capitalize(), 'lowest to highest seed', best='max')
      cells[column] = number(row[view], below=below)
    for view, best in (('before', ''), ('after', 'max')):
      worst = row[f'{view}_worst_tenth']
      cells[Column('Worst tenth', view, best=best)] = number(worst)
    for base in BASELINES:
      cells[Column(f'− {baseline_name(base)}', 'points')] = _gap(row, base)
    shown.append(cells)
  return table_of('Accuracy, %', shown, notes)


def _costs(rows: Sequence[Row], css: Css) -> Table:
  """Return what each method was given by validation, computed and sent."""
  shown = []
  for row in rows:
    cells = {METHOD: _name(row, css)}
    for name, (column, make) in COSTS.items():
      cell = Cell(NONE) if row[name] is None else make(row[name])
      if name == 'learning_rate' and row['is_end_of_grid']:
        cell = cell._replace(below=('end of the grid',))
      cells[column] = cell
    shown.append(cells)
  return table_of('Choice and cost', shown, [OF_COSTS])


def _gap(row: Row, baseline: str) -> Cell:
  names = ('mean', 'low', 'high', 'verdict')
  mean, low, high, verdict = (row[f'vs_{baseline}_{name}'] for name in names)
  if mean is None:
    return Cell(NONE)
  words = f'{low:+.2f} to {high:+.2f}'
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


# ---- The chart of a baseline -------------------------------------------------


def plot(baseline: str, rows: Sequence[Row], css: Css) -> Markup:
  """Draw a point and an interval for each method, the highest on top.

  A filled point is distinguishable from 0, a hollow one is not.
  """
  lines = []
  for row in compared_with(baseline, rows):
    name = display_name(row['method'])
    ends = [row[f'vs_{baseline}_{part}'] for part in ('mean', 'low', 'high')]
    mean, low, high = ends
    verdict = row[f'vs_{baseline}_verdict']
    title = f'{name}: {mean:+.2f} points, {low:+.2f} to {high:+.2f}: {verdict}'
    kind = 'hollow' if verdict == OPEN else 'mark'
    mark = charts.Mark(*ends, kind=kind)
    words = (f'{round(mean, 1) + 0.0:+.1f}',)
    lines.append(charts.Row(name, [mark], words, css[row['method']], title))
  label = 'difference after personalisation, points'
  return charts.plot_intervals(lines, label)
