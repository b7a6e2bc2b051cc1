"""The files of a comparison: page, tables, figure and counts."""

from collections.abc import Sequence
from pathlib import Path

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page import board_page
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.stored_counts import MARK, About, Found
from fedjax_pfl.results.statistics import board
from fedjax_pfl.results.tables import board_tables

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
  boards = [
    shown
    for partition, entries in found.items()
    if (shown := board.make_board(about, partition, entries))
  ]
  if not boards:
    progress.log('Nothing is written yet: no partition has all baselines.')
    return
  for shown in boards:
    sentences = board.sentences(shown)
    table = board_tables.tables_of(shown)[0].as_text()
    progress.log('\n'.join([f'{shown.partition}:', *sentences, table]))
  missing = board.not_finished(about, boards)
  for sentence in missing:
    progress.log(sentence)
  rows = [row for shown in boards for row in shown.rows]
  table = path.with_suffix('.csv')
  stored = table.read_bytes().count(b'\n') - 1 if table.exists() else 0
  # A finished comparison may be repeated, and stopped.
  if len(rows) < min(stored, len(about.partitions) * len(about.methods)):
    progress.log(f'{table} has {stored} rows, more than now: it is kept.')
    return
  stored_counts.write(found, about, path.with_name(f'{path.stem}{MARK}.csv'))
  board_tables.write_csv(rows, table)
  texts = {
    '.html': board_page.render(about, boards),
    '.md': board_tables.as_markdown(boards, (*missing, *about.protocol)),
    '.tex': board_tables.as_latex(boards, (*missing, *about.protocol)),
  }
  for suffix, text in texts.items():
    atomic_files.write_bytes(path.with_suffix(suffix), text.encode())
  save_figure(about, boards, path.with_suffix('.png'))
  names = ', '.join(f'{path.stem}{suffix}' for suffix in FORMATS)
  progress.log(f'In {path.parent}: {names}')


def save_figure(
  about: About, boards: Sequence[board.Board], path: Path
) -> None:
  """Save the differences to the baselines, a panel for each partition."""
  css = {method: f'c{number}' for number, method in enumerate(about.methods)}
  panels = []
  for drawn in boards:
    for base in about.baselines:
      title = f'{drawn.partition}: minus {paper_name(base)}'
      panels.append(Panel(title, board_page.plot(base, drawn, css)))
  colours = {css[method]: style_of(method).colour for method in about.methods}
  notes = ['Filled: distinguishable from 0 (Holm). Hollow: not.']
  figure = picture.draw('', panels, colours, notes)
  with path.open('wb') as stream:
    figure.savefig(stream, format='png', dpi=160)
