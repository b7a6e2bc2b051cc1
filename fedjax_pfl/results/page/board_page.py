"""The page of a comparison: verdicts, tables and intervals in one HTML file.

Its style, its tables and its script are those of the report's page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fedjax_pfl.results.charts import rows as charts
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.render import DATASETS, load_template
from fedjax_pfl.results.page.styles import display_name, style_of
from fedjax_pfl.results.runs.entry import REFERENCE
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.statistics.board import (
  ABOVE,
  BASELINE,
  BELOW,
  OPEN,
  WITHIN,
  Board,
  Row,
  compared,
  compared_with,
  not_finished,
  sentences,
)
from fedjax_pfl.results.tables.board_tables import has_alone
from fedjax_pfl.results.tables.table import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  duration,
  number,
  number_of,
  size,
  table_of,
  word,
)

TEMPLATE = 'board.html.jinja'
SIGNS = {ABOVE: '▲ ', BELOW: '▼ ', WITHIN: '= ', OPEN: '', None: ''}


def _as(form: str):
  return lambda value: number(value, form)


# What a method was given, computed and sent: the column, and a value's cell.
COSTS = {
  'settings': (Column('Settings', 'by validation', is_number=False), word),
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
VIEWS = (
  'Before: the global model, or the method’s own view before a client adapts. '
  '▲ above, ▼ below, where that is distinguishable; = within one point.'
)
OF_COSTS = (
  'Gradients and bytes are of the rounds of one training; fine-tuning adds its '
  'epochs. Time is of the whole training, the median of the seeds; the '
  'first of runs that share a program compiles it.'
)
RULE = (
  'Numbers are test accuracies of the last round: means over clients, then '
  'over seeds. A difference is paired by client and seed; its 95 % interval '
  '(Student, over seeds) is of this comparison alone. It is distinguishable if '
  'p, by Holm over all comparisons with the baselines in a partition, is below '
  '0.05. The worst tenth is shown where each client has 50 tests. The choice '
  'of the settings is not covered; other seeds repeat it.'
)
Css = Mapping[str, str]  # {method: class of its colour}


def render(about: About, boards: Sequence[Board]) -> str:
  """Return the page."""
  css = {method: f'c{place}' for place, method in enumerate(about.methods)}
  dataset = DATASETS.get(about.dataset, about.dataset)
  firsts = [f'{one.partition}: {sentences(one)[0]}' for one in boards]
  return load_template(TEMPLATE).render(
    title=f'{len(about.methods)} methods on {dataset}',
    lead=' '.join([*firsts, *not_finished(about, boards)]),
    facts=about.facts,
    methods={css[method]: style_of(method) for method in about.methods},
    boards=[_section(board, css) for board in boards],
    protocol=[*about.protocol, RULE],
  )


def _section(board: Board, css: Css) -> dict[str, Any]:
  return {
    'title': board.partition,
    'sentences': sentences(board),
    'accuracy': _accuracy(board, css),
    'costs': _costs(board.rows, css),
    'charts': [
      Panel(f'Minus {display_name(base)}', plot(base, board.rows, css))
      for base in board.baselines
    ],
  }


# ---- Tables ------------------------------------------------------------------


def _accuracy(board: Board, css: Css) -> Table:
  """Return a row for each method, the highest first."""
  shown, notes = [], [VIEWS]
  # A client of few tests leaves no worst tenth.
  measures = [
    measure
    for measure in compared()
    if any(row[f'after_{measure.column}'] is not None for row in board.rows)
  ]
  for row in board.rows:
    name = _name(row, css)
    marks = [row['kind']] * (row['kind'] in (BASELINE, REFERENCE))
    marks += [row['obstacle']] * bool(row['obstacle'])
    cells = {METHOD: name._replace(below=tuple(marks))}
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
    for measure in measures:
      value = row[f'after_{measure.column}']
      column = Column(measure.head, 'after', best=measure.better)
      cells[column] = number_of(measure, value)
    if has_alone(board):
      alone = Column('Worse than alone', 'of the clients', best='min')
      cells[alone] = number(row['worse_than_alone'], '{:.0f} %')
    for base in board.baselines:
      cells[Column(f'− {display_name(base)}', 'points')] = _gap(row, base)
    shown.append(cells)
  return table_of('Accuracy, %', shown, notes)


def _costs(rows: Sequence[Row], css: Css) -> Table:
  """Return what each method was given by validation, computed and sent."""
  shown = []
  for row in rows:
    cells = {METHOD: _name(row, css)}
    for name, (column, make) in COSTS.items():
      cell = Cell(NONE) if row[name] is None else make(row[name])
      if name == 'settings' and row['ends']:
        cell = cell._replace(below=(f'{row["ends"]}: an end of the grid',))
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


def _name(row: Row, css: Css) -> Cell:
  name = display_name(row['method'])
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
    kind = 'mark' if verdict in (ABOVE, BELOW) else 'hollow'
    mark = charts.Mark(*ends, kind=kind)
    words = (f'{round(mean, 1) + 0.0:+.1f}',)
    lines.append(charts.Row(name, [mark], words, css[row['method']], title))
  label = 'difference after personalisation, points'
  return charts.plot_intervals(lines, label)
