"""docs/dev/accelerators.md, of stored records."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from experiments.accelerators.compilation import Record
from experiments.accelerators.tables import CONFIGS, FOLDER, LABELS
from experiments.benchmarks.screen import number

PAGE = FOLDER.parents[1] / 'docs' / 'dev' / 'accelerators.md'
TEMPLATE = Path(__file__).with_name('page.md.jinja')
TITLES = {
  'models': 'Models: a round on one device',
  'methods': 'Methods: rounds and evaluation on one device',
}
FAILED = 'does not compile'

Records = Mapping[str, Sequence[Record]]  # by the name of the row
Table = tuple[str, list[str], list[list[str]]]  # title, heads, cells


def as_markdown(stored: Mapping[str, Records]) -> str:
  """Return the page: {platform: records}."""
  platforms = []
  for records in filter(None, stored.values()):
    everything = [one for own in records.values() for one in own]
    compilers = '; '.join(sorted({one['compilers'] for one in everything}))
    remarks = [
      f'{name.partition("/")[2].rpartition("-")[0]}, {one["program"]}: '
      f'{one["error"]}'
      for name, programs in records.items()
      for one in programs
      if one['error']
    ]
    device = everything[0]['device']
    platforms.append((device, compilers, [*_tables(records)], remarks))
  text = TEMPLATE.read_text(encoding='utf-8')
  template = jinja2.Template(text, trim_blocks=True, lstrip_blocks=True)
  return template.render(platforms=platforms).rstrip() + '\n'


def _tables(records: Records) -> Iterator[Table]:
  """Yield all tables of a platform that have rows."""
  sizes = {name.rpartition('-')[2] for name in records} - {'1'}
  parts = [(title, [table], '1') for table, title in TITLES.items()]
  parts += [
    (f'On a mesh of {size}', [*LABELS], size) for size in sorted(sizes, key=int)
  ]
  for title, tables, size in parts:
    rows = [row for table in tables for row in _rows(records, table, size)]
    if rows:  # without the columns that are empty
      heads = [head for head in rows[0] if any(row[head] for row in rows)]
      yield title, heads, [[row[head] for head in heads] for row in rows]


def _rows(
  records: Records, table: str, devices: str
) -> Iterator[dict[str, str]]:
  """Yield the cells of every round of a table, by the head of the column."""
  for name, programs in records.items():
    kind, _, rest = name.partition('/')
    label, _, size = rest.rpartition('-')
    if (kind, size) != (table, devices):
      continue
    rounds = [one for one in programs if one['program'] == 'round']
    if table == 'models' and size == '1':
      label = f'{label}, `{CONFIGS[label][0]}`'
    for one in rounds:
      stage = '' if len(rounds) == 1 else f', {one["stage"]}'
      same = [other for other in programs if other['stage'] == one['stage']]
      own = {other['program']: other for other in same}
      yield {'': f'{label}{stage}', **_cells(own)}


def _cells(own: Mapping[str, Record]) -> dict[str, str]:
  """Return the cells of a stage: {kind of program: its record}."""
  one, begin, evaluation = map(own.get, ('round', 'begin', 'evaluation'))
  chunk = one['clients_per_chunk']
  costs, mark = one.get('costs'), ''
  if not costs and one.get('step'):  # of before 24 November 2026
    costs, mark = one['step'], ' †'
  tested = begins = ''
  if evaluation:
    tested = _mib(evaluation, 'temporary') or FAILED
  if begin:
    begins = 'compiles' if begin['compiles'] else FAILED
  return {
    'batch': f'{one["images_per_step"] // max(chunk, 1):.0f}',
    'side by side': str(chunk),
    'GFLOP': number(costs['flops'] / 1e9) + mark if costs else '',
    'MB': number(costs['bytes'] / 1e6) + mark if costs else '',
    'arguments MiB': _mib(one, 'arguments') or FAILED,
    'temporary MiB': _mib(one, 'temporary'),
    'evaluation: temporary MiB': tested,
    'beginning': begins,
    'compiled at': one['commit'],
  }


def _mib(one: dict[str, Any], part: str) -> str:
  memory = one['memory']
  return '' if memory is None else f'{memory[part] / 2**20:,.1f}'
