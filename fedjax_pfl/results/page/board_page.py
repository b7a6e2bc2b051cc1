"""The files of a comparison: page, tables, figure and counts.

The page has verdicts, tables and intervals; its style and its script are those
of the report's page.
"""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts import rows as charts
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.render import load_template
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.stored_counts import MARK, About, Found
from fedjax_pfl.results.statistics.board import (
  Board,
  make_board,
  not_finished,
  sentences,
)
from fedjax_pfl.results.statistics.differences import ABOVE, BELOW
from fedjax_pfl.results.tables import board_tables

TEMPLATE = 'board.html.jinja'
FORMATS = '.html', '.csv', '.md', '.tex', '.png', f'{MARK}.csv'


def write(found: Found, about: About, path: Path) -> None:
  """Write page, tables, figure and counts of what has all baselines.

  Files with more rows are kept, unless these are all rows of the form. Of a
  shard, whose path is that of counts, these alone.
  """
  if path.suffix != '.html':
    stored_counts.write(found, about, path)
    progress.log(
      f'Counts: {path}; without --shard the command writes the table'
    )
    return
  boards = [make_board(about, *of_partition) for of_partition in found.items()]
  if not (boards := [*filter(None, boards)]):
    progress.log('Nothing is written yet: no partition has all baselines.')
    return
  for board in boards:
    table = board_tables.tables_of(board)[0].as_text()
    lines = [f'{board.partition}:', *sentences(board), table]
    progress.log('\n'.join(lines))
  missing = not_finished(about, boards)
  for sentence in missing:
    progress.log(sentence)
  number = sum(len(board.entries) for board in boards)
  table = path.with_suffix('.csv')
  stored = table.read_bytes().count(b'\n') - 1 if table.exists() else 0
  # A finished comparison may be repeated, and stopped.
  if number < min(stored, len(about.partitions) * len(about.methods)):
    progress.log(f'{table} has {stored} rows, more than now: it is kept.')
    return
  stored_counts.write(found, about, path.with_name(f'{path.stem}{MARK}.csv'))
  board_tables.write_csv(boards, table)
  texts = {
    '.html': render(about, boards),
    '.md': board_tables.as_markdown(boards, (*missing, *about.protocol)),
    '.tex': board_tables.as_latex(boards, missing),
  }
  for suffix, text in texts.items():
    atomic_files.write_bytes(path.with_suffix(suffix), text.encode())
  with path.with_suffix('.png').open('wb') as stream:
    draw(about, boards).savefig(stream, format='png', dpi=160)
  names = ', '.join(f'{path.stem}{suffix}' for suffix in FORMATS)
  progress.log(f'In {path.parent}: {names}')


def render(about: About, boards: Sequence[Board]) -> str:
  """Return the page."""
  css = board_tables.css_of(about)
  firsts = [f'{board.partition}: {sentences(board)[0]}' for board in boards]
  shown = [
    {
      'title': board.partition,
      'sentences': sentences(board),
      'tables': board_tables.tables_of(board),
      'charts': panels_of(board),
    }
    for board in boards
  ]
  return load_template(TEMPLATE).render(
    title=board_tables.title_of(about),
    lead=' '.join([*firsts, *not_finished(about, boards)]),
    facts=about.facts,
    methods={css[method]: style_of(method) for method in about.methods},
    boards=shown,
    protocol=[*about.protocol, board_tables.RULE],
  )


def draw(about: About, boards: Sequence[Board]):
  """Return a Figure of the differences to the baselines of each partition."""
  css, panels = board_tables.css_of(about), []
  for board in boards:
    panels += panels_of(board, f'{board.partition}: minus')
  colours = {css[method]: style_of(method).colour for method in css}
  notes = ['Filled: distinguishable from 0 (Holm). Hollow: not.']
  return picture.draw('', panels, colours, notes)


def panels_of(board: Board, title: str = 'Minus') -> list[Panel]:
  """Return a chart of the differences to each baseline."""
  return [
    Panel(f'{title} {paper_name(base)}', plot(base, board))
    for base in board.about.baselines
  ]


def plot(baseline: str, board: Board) -> Markup:
  """Draw a point and an interval for each method, the highest on top.

  A filled point is distinguishable from 0, a hollow one is not.
  """
  lines, main, css = [], board.about.main, board_tables.css_of(board.about)
  unit = main.unit_of_gap or main.head
  for entry in board.entries:
    verdict = board.standings[main].against.get((entry.method, baseline))
    if not verdict:
      continue
    name, gap = paper_name(entry.method), verdict.gap
    said, *limits = map(main.signed, gap[:3])
    title = f'{name}: {said} {unit}, {" to ".join(limits)}: {verdict.word}'
    kind = 'mark' if verdict.word in (ABOVE, BELOW) else 'hollow'
    mark = charts.Mark(*gap[:3], kind=kind)
    values = (main.signed(gap.mean, short=True),)
    lines.append(charts.Row(name, [mark], values, css[entry.method], title))
  label = f'difference after personalisation, {unit}'
  return charts.plot_intervals(lines, label)
