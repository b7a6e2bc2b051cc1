"""A table of our and the published numbers: as text, Markdown and CSV."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.reproduction.cells import Table, field
from experiments.reproduction.compare import Compared, compare_all
from experiments.reproduction.published import footnotes_of
from experiments.reproduction.results import Results
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files
from fedjax_pfl.results.charts.figure_file import format_number
from fedjax_pfl.results.tables.table import align, markdown

FOLDER = 'tables'
COLUMNS = ('ours', 'published', 'difference', '2 s.e.', 'within')
DIVERGED = 'diverged'  # in the place of our number
AGREES = {True: 'yes', False: 'no', None: '-'}
LOST = (
  'Our training diverged with seed {}; the printed number, too, may be what a '
  'diverged model gives.'
)


def write_table(table: Table, results: Results) -> Path:
  """Write a table as .csv and .md below the results; return the .md's path."""
  compared = compare_all(table.cells, results)
  path = results.folder / FOLDER / f'{table.name.replace("/", "_")}.md'
  rows = [_csv_row(table, cell) for cell in compared]
  atomic_files.write_csv(path.with_suffix('.csv'), [*rows[0]], rows)
  atomic_files.write_bytes(path, as_markdown(table, compared).encode())
  return path


def as_text(table: Table, compared: Sequence[Compared]) -> str:
  """Return one line for every cell that was run, a summary and footnotes."""
  lines, notes = _lines(table, compared)
  head = f'{table.name}: {table.title}'
  return '\n'.join([head, align(lines), summary_of(compared), *notes])


def as_markdown(table: Table, compared: Sequence[Compared]) -> str:
  """Return the same as a Markdown table."""
  (head, *rows), notes = _lines(table, compared)
  text = markdown(head, rows, range(1, len(head)))
  title = f'# {table.name}: {table.title}'
  return '\n\n'.join([title, text, summary_of(compared), *notes]) + '\n'


def summary_of(compared: Sequence[Compared]) -> str:
  """Return the number of cells that were run, and of those that agree."""
  done = [x for x in compared if x.ours]
  agreeing = [x.agrees for x in done if x.agrees is not None]
  text = f'{len(done)} of {len(compared)} cells run'
  if number := sum(bool(x.diverged) for x in compared):
    text += f'; {number} diverged'
  if agreeing:
    text += (
      f'; {sum(agreeing)} of {len(agreeing)} within twice the combined '
      'standard error'
    )
  return f'{text}.'


def pair(mean: float, std: float | None) -> str:
  """Return '84.93 ±  6.90'."""
  return f'{mean:.2f}' if std is None else f'{mean:.2f} ± {std:5.2f}'


def _csv_row(table: Table, compared: Compared) -> dict[str, Any]:
  """Return the columns of a cell: those that name it come first."""
  published, ours = compared.cell.published, compared.ours
  named = {name: field(published, name) for name in table.key_fields}
  lost = DIVERGED if compared.diverged else ''
  return named | {
    'metric': published.metric,
    'seeds': ' '.join(map(str, ours.seeds)) if ours else '',
    'ours_mean': format_number(ours.mean) if ours else lost,
    'ours_std': format_number(ours and ours.std),
    'published_mean': published.mean,
    'published_std': published.std,
    'difference': format_number(compared.difference),
    'two_standard_errors': format_number(compared.tolerance),
    'within': '' if compared.agrees is None else AGREES[compared.agrees],
    'footnote': ' '.join(_notes(compared)),
  }


def _lines(
  table: Table, compared: Sequence[Compared]
) -> tuple[list[tuple[str, ...]], list[str]]:
  """Return head and rows of cells, and the footnotes."""
  notes: dict[str, int] = {}
  names = table.key_fields
  lines = [(*(name.replace('_', ' ') for name in names), *COLUMNS)]
  for each in compared:
    ours, published = each.ours, each.cell.published
    if ours is None and not each.diverged:
      continue
    printed = '-'
    if published.mean is not None:
      printed = pair(published.mean, published.std)
    printed += marks(_notes(each), notes)
    mean = DIVERGED
    if ours:
      seeds = f' ({len(ours.seeds)} seeds)' if len(ours.seeds) > 1 else ''
      mean = pair(ours.mean, ours.std) + seeds
    difference = format_number(each.difference, '+.2f') or '-'
    tolerance = format_number(each.tolerance, '.2f') or '-'
    settings = (_shown(name, field(published, name)) for name in names)
    numbers = (mean, printed, difference, tolerance, AGREES[each.agrees])
    lines.append((*settings, *numbers))
  return lines, [f'[{number}] {note}' for note, number in notes.items()]


def marks(of_cell: Iterable[str], notes: dict[str, int]) -> str:
  """Return ' [1] [2]', the numbers of a cell's footnotes; add new ones."""
  numbers = (notes.setdefault(note, len(notes) + 1) for note in of_cell)
  return ''.join(f' [{number}]' for number in sorted(numbers))


def _notes(compared: Compared) -> list[str]:
  """Return the footnotes of a cell; of seeds that diverged, too."""
  seeds = ', '.join(map(str, compared.diverged))
  ours = [LOST.format(seeds)] * bool(seeds)
  return [*ours, *footnotes_of(compared.cell.published)]


def _shown(name: str, value: Any) -> str:
  if name == 'algorithm':
    return paper_name(value)
  return '-' if value is None else str(value).replace('_', ' ') or '-'
