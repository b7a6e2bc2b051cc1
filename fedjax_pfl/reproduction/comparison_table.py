"""A table of our and the published numbers: as text, Markdown and CSV."""

import csv
import io
import pathlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.cells import Table, field
from fedjax_pfl.reproduction.compare import Compared
from fedjax_pfl.reproduction.published import footnote

FOLDER = 'tables'
COLUMNS = ('ours', 'published', 'difference', '2 s.e.', 'within')
DIVERGED = 'diverged'  # in the place of our number
AGREES = {True: 'yes', False: 'no', None: '-'}
CSV_HEADER = (
  *('metric', 'seeds', 'ours_mean', 'ours_std'),
  *('published_mean', 'published_std', 'difference', 'two_standard_errors'),
  *('within', 'footnote'),
)


def as_text(table: Table, compared: Sequence[Compared]) -> str:
  """Return one line for every cell that was run, a summary and footnotes."""
  lines, notes = _lines(table, compared)
  parts = [f'{table.name}: {table.title}', align(lines), summary_of(compared)]
  parts += [f'[{number}] {note}' for note, number in notes.items()]
  return '\n'.join(parts)


def as_markdown(table: Table, compared: Sequence[Compared]) -> str:
  """Return the same as a Markdown table."""
  lines, notes = _lines(table, compared)
  head, *rows = lines
  text = markdown(head, rows, range(1, len(head)))
  parts = [f'# {table.name}: {table.title}', text, summary_of(compared)]
  parts += [f'[{number}] {note}' for note, number in notes.items()]
  return '\n\n'.join(parts) + '\n'


def markdown(
  head: Sequence[str],
  rows: Iterable[Sequence[str]],
  numbers: Collection[int] = (),
) -> str:
  """Return a Markdown table; columns of `numbers` are aligned right."""
  marks = ['---:' if at in numbers else '---' for at in range(len(head))]
  lines = [head, marks, *rows]
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def as_csv(table: Table, compared: Sequence[Compared]) -> str:
  """Return every cell of the table, run or not, one a line."""
  stream = io.StringIO()
  writer = csv.writer(stream, lineterminator='\n')
  names = table.key_fields
  own = [name for name in CSV_HEADER if name not in names]
  writer.writerow([*names, *own])
  for comparison in compared:
    published, ours = comparison.cell.published, comparison.ours
    values = {
      'metric': published.metric,
      'seeds': ' '.join(map(str, ours.seeds)) if ours else '',
      'ours_mean': DIVERGED
      if comparison.diverged and not ours
      else _decimal(ours and ours.mean),
      'ours_std': _decimal(ours and ours.std),
      'published_mean': published.mean,
      'published_std': '' if published.std is None else published.std,
      'difference': _decimal(comparison.difference),
      'two_standard_errors': _decimal(comparison.tolerance),
      'within': '' if comparison.agrees is None else AGREES[comparison.agrees],
      'footnote': _note(comparison),
    }
    settings = [_plain(field(published, name)) for name in names]
    writer.writerow([*settings, *(values[name] for name in own)])
  return stream.getvalue()


def write_files(
  table: Table, compared: Sequence[Compared], folder: pathlib.Path
) -> pathlib.Path:
  """Write the table as .csv and .md below `folder`; return the .md's path."""
  folder = folder / FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f'{table.name.replace("/", "_")}.md'
  atomic_files.write_bytes(path, as_markdown(table, compared).encode())
  csv_path = path.with_suffix('.csv')
  atomic_files.write_bytes(csv_path, as_csv(table, compared).encode())
  return path


def summary_of(compared: Sequence[Compared]) -> str:
  """Return the number of cells that were run, and of those that agree."""
  done = [comparison for comparison in compared if comparison.ours]
  agreeing = [one.agrees for one in done if one.agrees is not None]
  text = f'{len(done)} of {len(compared)} cells run'
  if number := sum(bool(one.diverged) for one in compared):
    text += f'; {number} diverged'
  if agreeing:
    text += (
      f'; {sum(agreeing)} of {len(agreeing)} within twice the combined '
      'standard error'
    )
  return f'{text}.'


def _lines(
  table: Table, compared: Sequence[Compared]
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
  """Return head and rows of cells, and the footnotes with their numbers."""
  notes: dict[str, int] = {}
  names = table.key_fields
  lines = [(*(name.replace('_', ' ') for name in names), *COLUMNS)]
  for comparison in compared:
    if comparison.ours is None and not comparison.diverged:
      continue
    published, ours = comparison.cell.published, comparison.ours
    mark = ''
    if note := _note(comparison):
      mark = f' [{notes.setdefault(note, len(notes) + 1)}]'
    settings = [_shown(name, field(published, name)) for name in names]
    printed = _pair(published.mean, published.std) + mark
    if ours is None:
      lines.append((*settings, DIVERGED, printed, '-', '-', AGREES[None]))
      continue
    lines.append(
      (
        *settings,
        _pair(ours.mean, ours.std) + _seeds(ours.seeds),
        printed,
        f'{comparison.difference:+.2f}',
        '-' if comparison.tolerance is None else f'{comparison.tolerance:.2f}',
        AGREES[comparison.agrees],
      )
    )
  return lines, notes


def _note(comparison: Compared) -> str:
  """Return the footnote of a cell; of seeds that diverged or are gone, too."""
  notes = [footnote(comparison.cell.published)]
  if comparison.diverged:
    seeds = ', '.join(map(str, comparison.diverged))
    notes.insert(
      0,
      f'Our training diverged with seed {seeds}; the printed number, too, may '
      'be what a diverged model gives.',
    )
  if comparison.kept:
    seeds = ', '.join(map(str, comparison.kept))
    notes.insert(
      0,
      f'Ours, seed {seeds}: a row of summary.csv whose run directory is gone.',
    )
  return ' '.join(filter(None, notes))


def _pair(mean: float, std: float | None) -> str:
  return f'{mean:.2f}' if std is None else f'{mean:.2f} ± {std:5.2f}'


def _seeds(seeds: Sequence[int]) -> str:
  return f' ({len(seeds)} seeds)' if len(seeds) > 1 else ''


def _shown(name: str, value: Any) -> str:
  if name == 'algorithm':
    return display_name(value)
  return _plain(value).replace('_', ' ') or '-'


def _plain(value: Any) -> str:
  return '' if value is None else str(value)


def _decimal(value: float | None) -> str:
  return '' if value is None else f'{value:.4f}'
