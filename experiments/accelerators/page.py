"""docs/dev/accelerators.md, of stored records."""

from collections.abc import Iterator, Mapping, Sequence

from experiments.accelerators.compilation import Record
from experiments.accelerators.tables import CONFIGS, FOLDER, LABELS
from experiments.benchmarks.screen import number

PAGE = FOLDER.parents[1] / 'docs' / 'dev' / 'accelerators.md'
HEAD = """# Compiled for accelerators

    make accelerators      # the compilers, 1.4 GB, and these tables

Written by `python experiments/accelerator_tables.py --write` from what
compilers for a TPU and an H100 said on a machine without either
([what the numbers mean](performance_notes.md#on-accelerators-what-the-compiler-says)):
**nothing was run on an accelerator**. Arguments and temporary are XLA's
`memory_analysis()` of a call on one device. GFLOP and MB of a round are its
`cost_analysis()`, which counts each loop once and is none for an H100; with a
dagger (†) they are of one step, read from the text of the program, as was done up
to 23 November 2026. Kernels, cycles and collectives of that text are in
`results/accelerators`. Methods are those of `configs/digits.py`. A row is of the
commit that it names, and is compiled again when its program changes.
"""  # noqa: E501
TITLES = {
  'models': 'Models: a round on one device',
  'methods': 'Methods: rounds and evaluation on one device',
}
FAILED = 'does not compile'

Records = Mapping[str, Sequence[Record]]  # by the name of the row


def as_markdown(stored: Mapping[str, Records]) -> str:
  """Return the page: {platform: records}."""
  lines = [HEAD]
  for records in stored.values():
    everything = [one for own in records.values() for one in own]
    if everything:
      compilers = '; '.join(sorted({one['compilers'] for one in everything}))
      lines += [f'## {everything[0]["device"]}\n', f'{compilers}.\n']
      lines += tables(records)
      lines += remarks(records)
  return '\n'.join(lines).rstrip() + '\n'


def tables(records: Records) -> Iterator[str]:
  """Yield the lines of all tables of a platform."""
  for table, title in TITLES.items():
    yield from _table(title, _rows(records, table, '1'))
  sizes = {name.rpartition('-')[2] for name in records} - {'1'}
  for size in sorted(sizes, key=int):
    found = [row for table in LABELS for row in _rows(records, table, size)]
    yield from _table(f'On a mesh of {size}', found)


def remarks(records: Records) -> list[str]:
  """Return a sentence about every program that does not compile or fit."""
  return [
    f'- {name.partition("/")[2].rpartition("-")[0]}, {one["program"]}: '
    f'{one["error"]}'
    for name, programs in records.items()
    for one in programs
    if one['error']
  ]


def _table(title: str, rows: list[dict[str, str]]) -> Iterator[str]:
  """Yield a table without the columns that are empty."""
  if not rows:
    return
  heads = [head for head in rows[0] if any(row[head] for row in rows)]
  yield f'### {title}\n'
  for cells in (heads, ['---'] * len(heads)):
    yield f'| {" | ".join(cells)} |'
  for row in rows:
    yield f'| {" | ".join(row[head] for head in heads)} |'
  yield ''


def _rows(records: Records, table: str, devices: str) -> list[dict[str, str]]:
  """Return the cells of every round of a table, by the head of the column."""
  rows = []
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
      rows.append({'': f'{label}{stage}', **_cells(own)})
  return rows


def _cells(own: Mapping[str, Record]) -> dict[str, str]:
  """Return the cells of a stage: {kind of program: its record}."""
  one, begin = own['round'], own.get('begin')
  chunk = one['clients_per_chunk']
  costs, mark = one.get('costs'), ''
  if not costs and one.get('step'):  # of before 24 November 2026
    costs, mark = one['step'], ' †'
  flops = number(costs['flops'] / 1e9) + mark if costs else ''
  moved = number(costs['bytes'] / 1e6) + mark if costs else ''
  begins = '' if begin is None else 'compiles' if begin['compiles'] else FAILED
  return {
    'batch': f'{one["images_per_step"] // max(chunk, 1):.0f}',
    'side by side': str(chunk),
    'GFLOP': flops,
    'MB': moved,
    'arguments MiB': _mib(one, 'arguments') or FAILED,
    'temporary MiB': _mib(one, 'temporary'),
    'evaluation: temporary MiB': _evaluation(own.get('evaluation')),
    'beginning': begins,
    'compiled at': one['commit'],
  }


def _evaluation(one: Record | None) -> str:
  return '' if one is None else _mib(one, 'temporary') or FAILED


def _mib(one: Record, part: str) -> str:
  memory = one['memory']
  return '' if memory is None else f'{memory[part] / 2**20:,.1f}'
