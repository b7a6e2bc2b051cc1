"""The table of a partition: CSV, and for a paper Markdown and LaTeX.

The best mean and those that are not distinguishable from it are bold.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files
from fedjax_pfl.results.runs.entry import REFERENCE
from fedjax_pfl.results.statistics.board import Board, Row
from fedjax_pfl.results.tables.text_table import decimal, markdown

LATEX = {'&': r'\&', '%': r'\%', '_': r'\_', '#': r'\#', '$': r'\$'}


def head(board: Board) -> list[str]:
  gaps = [f'minus {paper_name(base)}' for base in board.baselines]
  words = ['method', 'before', 'after', 'worst tenth', 'lowest client', *gaps]
  alone = ['worse than alone, %'] * has_alone(board)
  return [*words, *alone, 'gradients', 'MB up', 'MB down']


def has_alone(board: Board) -> bool:
  """Return whether clients that train alone are among the methods."""
  return any(row['worse_than_alone'] is not None for row in board.rows)


def rows_of(board: Board) -> Iterator[tuple[Row, list[str]]]:
  """Yield each method that is compared, and its cells."""
  for row in board.rows:
    if row['after'] is None or row['kind'] == REFERENCE:
      continue
    names = 'before', 'after', 'after_worst_tenth', 'after_lowest_client'
    cells = [paper_name(row['method']), *(decimal(row[x]) for x in names)]
    for base in board.baselines:
      mean, low, high = (row[f'vs_{base}_{x}'] for x in ('mean', 'low', 'high'))
      interval = (
        '' if mean is None else f'{mean:+.2f} ({low:+.2f} to {high:+.2f})'
      )
      cells.append(interval or '-')
    if has_alone(board):
      cells.append(decimal(row['worse_than_alone'], '.0f'))
    cells.append(f'{row["gradients"]:,.0f}')
    cells += [f'{row[x] / 1e6:,.1f}' for x in ('bytes_up', 'bytes_down')]
    yield row, cells


def is_bold(board: Board, row: Row) -> bool:
  return row['method'] == board.best or row['method'] in board.peers


def as_markdown(
  boards: Sequence[Board],
  sentences: Sequence[str],
  marks: Mapping[str, str] | None = None,
) -> str:
  """Return a table of each board; `marks` of methods are a column more."""
  parts, more = [*sentences], ['mark'] * bool(marks)
  for board in boards:
    rows = []
    for row, cells in rows_of(board):
      if is_bold(board, row):
        cells[2] = f'**{cells[2]}**'
      rows.append([*cells, *([marks[row['method']]] if marks else [])])
    numbers = range(1, len(head(board)))
    table = markdown([*head(board), *more], rows, numbers)
    parts += [f'## {board.partition}', table]
  return '\n\n'.join(parts) + '\n'


def as_latex(boards: Sequence[Board], sentences: Sequence[str]) -> str:
  parts = [f'% {line}' for line in ['needs \\usepackage{booktabs}', *sentences]]
  for board in boards:
    columns = 'l' + 'r' * (len(head(board)) - 1)
    rows = []
    for row, cells in rows_of(board):
      cells = [*map(_escaped, cells)]
      if is_bold(board, row):
        cells[2] = rf'\textbf{{{cells[2]}}}'
      rows.append(' & '.join(cells) + r' \\')
    parts += [
      rf'\begin{{tabular}}{{{columns}}}  % {board.partition}',
      r'\toprule',
      ' & '.join(map(_escaped, head(board))) + r' \\',
      r'\midrule',
      *rows,
      r'\bottomrule',
      r'\end{tabular}',
    ]
  return '\n'.join(parts) + '\n'


def _escaped(text: str) -> str:
  text = ''.join(LATEX.get(one, one) for one in text)
  return text.replace('-', '$-$') if text[:1] in '+-' else text


def write_csv(rows: Sequence[Row], path: Path) -> None:
  texts = [{name: _text(row[name]) for name in row} for row in rows]
  atomic_files.write_csv(path, [*rows[0]], texts)


def _text(value: Any) -> str:
  if isinstance(value, float):
    return f'{value:.6g}' if value < 1000 else f'{value:.0f}'
  return '' if value is None else str(value)
