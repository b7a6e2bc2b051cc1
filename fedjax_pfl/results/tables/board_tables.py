"""The table of a partition: CSV, and for a paper Markdown and LaTeX.

The best mean and those that are not distinguishable from it are bold.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files
from fedjax_pfl.results.runs.entry import REFERENCE
from fedjax_pfl.results.statistics.board import Board, Row, compared
from fedjax_pfl.results.tables.table import Cell, Column, Table, of_markdown
from fedjax_pfl.results.tables.text_table import decimal

METHOD = Column('method', is_number=False)


def has_alone(board: Board) -> bool:
  """Return whether clients that train alone are among the methods."""
  return any(row['worse_than_alone'] is not None for row in board.rows)


def table_of(board: Board, marks: Mapping[str, str] | None = None) -> Table:
  """Return the methods that are compared; `marks` of them are a column more."""
  rows = []
  for row in board.rows:
    if row['after'] is None or row['kind'] == REFERENCE:
      continue
    is_bold = row['method'] == board.best or row['method'] in board.peers
    cells = {
      METHOD: Cell(paper_name(row['method'])),
      Column('before'): Cell(decimal(row['before'])),
      Column('after'): Cell(decimal(row['after']), is_best=is_bold),
    }
    for measure in compared():
      words = measure.short(row[f'after_{measure.column}'])
      cells[Column(measure.head.lower())] = Cell(words)
    for base in board.baselines:
      mean, low, high = (row[f'vs_{base}_{x}'] for x in ('mean', 'low', 'high'))
      words = '-'
      if mean is not None:
        words = f'{mean:+.2f} ({low:+.2f} to {high:+.2f})'
      cells[Column(f'minus {paper_name(base)}')] = Cell(words)
    if has_alone(board):
      words = decimal(row['worse_than_alone'], '.0f')
      cells[Column('worse than alone, %')] = Cell(words)
    cells[Column('gradients')] = Cell(f'{row["gradients"]:,.0f}')
    for way in ('up', 'down'):
      cells[Column(f'MB {way}')] = Cell(f'{row[f"bytes_{way}"] / 1e6:,.1f}')
    if marks:
      cells[Column('mark', is_number=False)] = Cell(marks[row['method']])
    rows.append(cells)
  columns = tuple(rows[0])
  return Table(board.partition, columns, [[*one.values()] for one in rows])


def as_markdown(
  boards: Sequence[Board],
  sentences: Sequence[str],
  marks: Mapping[str, str] | None = None,
) -> str:
  """Return sentences, and the table of each board."""
  parts = [*map(of_markdown, sentences)]
  for board in boards:
    title = of_markdown(board.partition)
    parts += [f'## {title}', table_of(board, marks).as_markdown()]
  return '\n\n'.join(parts) + '\n'


def as_latex(boards: Sequence[Board], sentences: Sequence[str]) -> str:
  lines = ['needs \\usepackage{booktabs}', *sentences]
  parts = [f'% {" ".join(line.split())}' for line in lines]
  parts += [table_of(board).as_latex() for board in boards]
  return '\n'.join(parts) + '\n'


def write_csv(rows: Sequence[Row], path: Path) -> None:
  texts = [{name: _text(row[name]) for name in row} for row in rows]
  atomic_files.write_csv(path, [*rows[0]], texts)


def _text(value: Any) -> str:
  if isinstance(value, float):
    return f'{value:.6g}' if value < 1000 else f'{value:.0f}'
  return '' if value is None else str(value)
