"""The file from which a table is computed again: counts of every client.

A row is a partition, a method and a seed: what validation chose, right answers
and tests of each client before and after personalisation, its values of other
measures (after/macro_f1; nan where it has none), costs, and of a robust server
whom it left out (left_out/recall). Beside it a JSON
(`About`) says what was compared, and how. Nothing else is read.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.evaluation.measures import LEFT_OUT, MAX, Measure, measure_of
from fedjax_pfl.results.runs.entry import Choice, Costs, Counts, Entry

MARK = '_counts'  # in the name of the file
VIEWS = 'before', 'after'
COLUMNS = (
  *('partition', 'method', 'kind', 'seed', 'choice', 'obstacle'),
  *('before_correct', 'before_total', 'after_correct', 'after_total'),
  *Costs._fields,
)
Found = Mapping[str, Sequence[Entry]]  # by partition


class About(NamedTuple):
  """What was compared, in words and numbers."""

  name: str
  dataset: str
  methods: tuple[str, ...]
  partitions: tuple[str, ...]
  baselines: tuple[str, ...]
  seeds: tuple[int, ...]
  facts: tuple[tuple[str, Any], ...]  # name and value
  protocol: tuple[str, ...]  # sentences
  version: str = ''
  commit: str = ''
  same_clients: tuple[str, ...] = ()  # partitions: client k with every seed
  # Name, and which way is better: the first is tuned by, and compared.
  measures: tuple[tuple[str, str], ...] = (('accuracy', MAX),)

  @property
  def measured(self) -> list[Measure]:
    return [measure_of(*pair) for pair in self.measures]

  @property
  def main(self) -> Measure:
    return self.measured[0]

  def tag(self, measure: Measure) -> str:
    """Return the end of the names of its columns; '' of the main one."""
    return '' if measure == self.main else f'_{measure.column}'


def write(found: Found, about: About, path: Path) -> None:
  """Write the counts and what they are of."""
  rows = [
    row
    for partition, entries in found.items()
    for entry in entries
    for row in _rows(partition, entry)
  ]
  others = [name for name, _ in about.measures if name != 'accuracy']
  columns = [*COLUMNS, *(f'{view}/{x}' for view in VIEWS for x in others)]
  # The same names in all rows with numbers.
  columns += dict.fromkeys(x for row in rows for x in row if LEFT_OUT in x)
  atomic_files.write_csv(path, columns, rows)
  atomic_files.write_json(about_path(path), about._asdict())


def about_path(path: Path) -> Path:
  return path.with_name(path.name.partition(MARK)[0] + '.json')


def _rows(partition: str, entry: Entry):
  row = dict.fromkeys(COLUMNS, '')
  row |= {name: getattr(entry, name) for name in ('method', 'kind', 'obstacle')}
  row['partition'] = partition
  if entry.choice is not None:
    row['choice'] = json.dumps(atomic_files.plain(entry.choice._asdict()))
  if not entry.seeds:
    yield row
  for at, seed in enumerate(entry.seeds):
    of_seed = {**row, 'seed': seed}
    for view, counts in zip(VIEWS, (entry.before, entry.after), strict=True):
      if counts:
        of_seed[f'{view}_correct'] = ' '.join(map(str, counts.correct[at]))
        of_seed[f'{view}_total'] = ' '.join(map(str, counts.total[at]))
        for name, values in counts.others.items():
          of_seed[f'{view}/{name}'] = ' '.join(map(str, values[at].tolist()))
    numbers = entry.costs[at]._asdict()
    numbers |= {name: values[at] for name, values in entry.left_out.items()}
    yield of_seed | {name: str(value) for name, value in numbers.items()}


def files_of(named: AnyPath) -> list[Path]:
  """Return the files of counts in a folder, or the one that is named."""
  path = Path(named)
  files = sorted(path.glob(f'*{MARK}*.csv')) if path.is_dir() else [path]
  if not files or not all(MARK in file.name for file in files):
    raise _unfit(named, 'the table instead of the counts, or another folder')
  # The whole, where the shards of it are there, too.
  return [file for file in files if file.stem.endswith(MARK)] or files


def read(paths: Sequence[Path]) -> tuple[About, dict[str, list[Entry]]]:
  """Return what one or more files hold together; refuse what does not fit."""
  abouts, groups = [], {}
  for path in paths:
    try:
      content = atomic_files.read_bytes(about_path(path))
      content = atomic_files.parse_object(content)
      abouts.append(About(**{name: _tuple(x) for name, x in content.items()}))
      text = atomic_files.read_bytes(path).decode()
      # A field has all clients: by default 65,536 of them are too many.
      csv.field_size_limit(max(len(text), csv.field_size_limit()))
      for row in csv.DictReader(io.StringIO(text, newline='')):
        groups.setdefault((row['partition'], row['method']), []).append(row)
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
      raise _unfit(path, f'{type(error).__name__}: {error}') from error
  if len({about.name for about in abouts}) > 1:
    raise _unfit(paths[-1], 'a comparison of another name')
  unknown = {method for _, method in groups} - {*abouts[0].methods}
  if unknown or not groups:
    cause = f'no row, or methods that the JSON has not: {sorted(unknown)}'
    raise _unfit(paths[0], cause)
  partitions: dict[str, list[Entry]] = {}
  for (partition, method), rows in groups.items():
    try:
      partitions.setdefault(partition, []).append(_entry(rows))
    except (ValueError, TypeError, KeyError, IndexError) as error:
      raise _unfit(f'{partition}, {method}', f'{error}') from error
  for entries in partitions.values():
    entries.sort(key=lambda entry: abouts[0].methods.index(entry.method))
  return abouts[0], partitions


def _tuple(value: Any) -> Any:
  return tuple(map(_tuple, value)) if isinstance(value, list) else value


def _unfit(got: Any, cause: str) -> Exception:
  return bad_input(
    'counts',
    got=str(got),
    expected=f'the counts of a comparison, *{MARK}.csv, and its JSON beside it',
    cause=cause,
  )


def _entry(rows: Sequence[Mapping[str, str]]) -> Entry:
  """Return the entry of one method in one partition."""
  first, choice = rows[0], None
  if first['choice']:
    fields = atomic_files.parse_object(first['choice'])
    fields.setdefault('value', fields.pop('accuracy', None))  # older files
    choice = Choice(**fields | {'ends': tuple(fields['ends'])})
  names = 'method', 'kind', 'obstacle'
  entry = Entry(choice=choice, **{name: first[name] for name in names})
  kinds = [len({row[name] for row in rows}) for name in ('seed', 'choice')]
  if kinds != [len(rows), 1]:
    raise ValueError('a seed twice, or seeds with different settings')
  if entry.obstacle:
    return entry
  rows = sorted(rows, key=lambda row: int(row['seed']))
  seeds = tuple(int(row['seed']) for row in rows)
  before, after = (_counts(rows, view) for view in VIEWS)
  costs = tuple(Costs(*(float(row[x]) for x in Costs._fields)) for row in rows)
  left_out = {
    name: [float(row[name]) for row in rows]
    for name in first
    if name.startswith(LEFT_OUT) and first[name]
  }
  return entry._replace(
    seeds=seeds, before=before, after=after, costs=costs, left_out=left_out
  )


def _counts(rows: Sequence[Mapping[str, str]], view: str) -> Counts | None:
  if not rows[0][f'{view}_total']:
    return None
  correct, total = (
    np.array([np.fromstring(row[name], int, sep=' ') for row in rows])
    for name in (f'{view}_correct', f'{view}_total')
  )
  is_within = correct.shape == total.shape and (correct <= total).all()
  if not is_within or (correct < 0).any():
    raise ValueError('right answers are not from 0 to the number of tests')
  others = {
    name.removeprefix(f'{view}/'): np.array(
      [np.array(row[name].split(), float) for row in rows]
    )
    for name in rows[0]
    if name.startswith(f'{view}/') and rows[0][name]
  }
  if any(values.shape != total.shape for values in others.values()):
    raise ValueError('a measure has not one value for each client')
  return Counts(correct, total, others)
