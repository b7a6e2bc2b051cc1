"""A table, and what it looks like: text, Markdown, LaTeX, or cells of the page.

A cell is plain text; each renderer escapes it. Bold is what the rule of
`statistics/differences.py` does not tell from the highest.
"""

import html
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.evaluation.measures import ACCURACY, Measure

NONE = '–'
BOLD = r'\textbf{{{}}}'
LATEX = {sign: f'\\{sign}' for sign in '&%_#${}'}
LATEX |= {'\\': r'\textbackslash{}', '~': r'\textasciitilde{}'}
LATEX |= {'^': r'\textasciicircum{}', '±': r'$\pm$', '−': '$-$', '–': '--'}
STAR = '\n* the best, and what is not distinguishable from it'
UNITS = 'B', 'kB', 'MB', 'GB', 'TB'


class Cell(NamedTuple):
  text: str
  sort: float | str | None = None  # None: last in both directions
  below: tuple[str, ...] = ()  # smaller lines
  is_best: bool = False
  css: str = ''  # of the method whose colour precedes the text

  @property
  def line(self) -> str:
    """Return all in one line: '+2.10 (+1.00 to +3.20)'."""
    return f'{self.text} ({", ".join(self.below)})' if self.below else self.text


class Column(NamedTuple):
  name: str
  hint: str = ''
  is_number: bool = True
  help: str = ''  # below the table


METHOD = Column('Method', is_number=False)


class Table(NamedTuple):
  """Columns and rows; the page draws it by `macros.html.jinja`."""

  title: str
  columns: tuple[Column, ...]
  rows: list[list[Cell]]
  notes: tuple[str, ...] = ()

  @property
  def head(self) -> tuple[str, ...]:
    return tuple(column.name for column in self.columns)

  def as_text(self) -> str:
    """Return the table for a terminal; bold is a star."""
    columns = zip(*self.rows, strict=True)
    starred = [any(cell.is_best for cell in column) for column in columns]
    rows = [
      [
        cell.text + (' *' if cell.is_best else '  ' * star)
        for cell, star in zip(row, starred, strict=True)
      ]
      for row in self.rows
    ]
    return align([self.head, *rows]) + STAR * any(starred)

  def as_markdown(self) -> str:
    rows = self._lines(of_markdown, '**{}**')
    numbers = [at for at, column in enumerate(self.columns) if column.is_number]
    head = [*map(of_markdown, self.head)]
    return markdown(head, rows, numbers)

  def as_latex(self) -> str:
    """Return a tabular of the package booktabs."""
    form = ''.join('r' if column.is_number else 'l' for column in self.columns)
    rows = [[*map(of_latex, self.head)], *self._lines(of_latex, BOLD)]
    head, *lines = (' & '.join(row) + r' \\' for row in rows)
    return '\n'.join(
      [
        rf'\begin{{tabular}}{{{form}}}  % {" ".join(self.title.split())}',
        *(r'\toprule', head, r'\midrule', *lines, r'\bottomrule'),
        r'\end{tabular}',
      ]
    )

  def _lines(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    forms = ('{}', bold)
    return [
      [forms[cell.is_best].format(escape(cell.line)) for cell in row]
      for row in self.rows
    ]


def of_markdown(text: str) -> str:
  """Return text that is neither HTML nor the end of a cell."""
  return html.escape(' '.join(text.split()), quote=False).replace('|', r'\|')


def of_latex(text: str) -> str:
  """Return text whose signs mean themselves; a number has a true minus."""
  text = ''.join(LATEX.get(sign, sign) for sign in ' '.join(text.split()))
  return re.sub(r'(?<![\w}])-(?=\d)', '$-$', text)


def table_of(
  title: str, rows: Sequence[Mapping[Column, Cell]], notes: Sequence[str] = ()
) -> Table | None:
  """Return the table of rows {column: cell}; None without a row."""
  if not rows:
    return None
  columns = (*rows[0],)
  helps = ' '.join(f'{x.name}: {x.help}.' for x in columns if x.help)
  notes = *filter(None, [helps]), *notes
  return Table(title, columns, [[*row.values()] for row in rows], notes)


def word(value: Any) -> Cell:
  """Return a value as text; a dash for None."""
  return Cell(NONE) if value is None else Cell(f'{value}', f'{value}')


def number(
  value: float | None,
  form: str | Callable[[float], str] = '{:.2f}',
  below: tuple[str, ...] = (),
) -> Cell:
  """Return a number in this form; a dash for None and what is not finite."""
  value = value if isinstance(value, int | None) else float(value)
  if value is None or not math.isfinite(value):
    return Cell(NONE, None, below)
  text = form.format if isinstance(form, str) else form
  return Cell(text(value), value, below)


def size(value: float) -> str:
  """Return bytes in a fitting unit: '18.1 MB'."""
  power = min(4, int(math.log10(max(value, 1)) / 3))
  return f'{value / 1000**power:.{1 if power else 0}f} {UNITS[power]}'


# ---- plain text


def align(rows: Sequence[tuple[str, ...]]) -> str:
  """Return rows of cells in columns, the first row as their heads."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rule = tuple('-' * width for width in widths)
  lines = []
  for first, *rest in (rows[0], rule, *rows[1:]):
    cells = [first.ljust(widths[0])]
    cells += [c.rjust(w) for c, w in zip(rest, widths[1:], strict=True)]
    lines.append('  '.join(cells))
  return '\n'.join(lines)


def markdown(
  head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection = ()
) -> str:
  """Return a Markdown table; columns of `numbers` are aligned right."""
  marks = ['---:' if at in numbers else '---' for at in range(len(head))]
  lines = [head, marks, *rows]
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def time_in_words(seconds: float) -> str:
  """Return a time in fitting units: '80 s', '12 min', '1 h 09 min'."""
  minutes = round(seconds / 60)
  if seconds < 120:
    return f'{seconds:.0f} s'
  if minutes < 120:
    return f'{minutes} min'
  return f'{minutes // 60} h {minutes % 60:02d} min'


def mean_and_std(
  summary: Mapping[str, Any] | None, measure: Measure = ACCURACY
) -> str:
  """Return 'mean ± std'; '-' where there is no such view or no number."""
  mean = measure.short(summary and summary['mean'])
  return mean if mean == '-' else f'{mean} ± {measure.short(summary["std"]):>4}'
