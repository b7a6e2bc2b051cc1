"""The tables of docs/accelerators.md, of stored records."""

from collections.abc import Iterator, Mapping, Sequence

from experiments.accelerators.rows import CONFIGS, TABLES
from experiments.accelerators.store import ROOT, Record
from experiments.benchmarks.screen import number

PAGE = ROOT / 'docs' / 'accelerators.md'
HEAD = """# Compiled for accelerators

    make accelerators      # the compilers, 1.4 GB, and these tables

Written by `python experiments/accelerator_tables.py --write` from what
compilers for a TPU and an H100 said on a machine without either
([what the numbers mean](performance.md#on-accelerators-what-the-compiler-says)):
**nothing was run on an accelerator**. Arguments and temporary are XLA's
`memory_analysis()` of a call on one device. GFLOP and MB of a round are its
`cost_analysis()`, which counts each loop once and is none for an H100; with a
dagger (†) they are of one step, read from the text of the program, as was done up
to 23 November 2026. Kernels, cycles and collectives of that text are in
`results/accelerators`. Methods are those of `configs/digits.py`. A row is of the
commit that it names, and is compiled again when its program changes.
"""  # noqa: E501
Records = Mapping[str, Sequence[Record]]  # by the name of the row
TITLES = {
  'models': 'Models: a round on one device',
  'methods': 'Methods: rounds and evaluation on one device',
}
HEADS = (
  *('batch', 'side by side', 'GFLOP', 'MB', 'arguments MiB'),
  'temporary MiB',
)
MORE = {
  'models': (),
  'methods': ('evaluation: temporary MiB', 'beginning'),
}
FAILED = 'does not compile'


def as_markdown(stored: Mapping[str, Records]) -> str:
  """Return the page: {platform: records}."""
  lines = [HEAD]
  for records in stored.values():
    first = next((one for own in records.values() for one in own), None)
    if first is None:
      continue
    compilers = {one['compilers'] for own in records.values() for one in own}
    lines += [f'## {first["device"]}\n', f'{"; ".join(sorted(compilers))}.\n']
    lines += tables(records)
    lines += [f'- {remark}' for remark in remarks(records)]
  return '\n'.join(lines).rstrip() + '\n'


def tables(records: Records) -> Iterator[str]:
  """Yield the lines of all tables of a platform."""
  for table in TABLES:
    rows = [
      line
      for label, programs in _rows_of(records, table, '1').items()
      for line in _on_one_device(table, label, programs)
    ]
    if rows:
      yield f'### {TITLES[table]}\n'
      yield from _table(('', *HEADS, *MORE[table], 'compiled at'), rows)
  sizes = sorted({name.rpartition('-')[2] for name in records} - {'1'}, key=int)
  for devices in sizes:
    yield f'### On a mesh of {devices}\n'
    yield from _table(
      ('', *HEADS, 'compiled at'),
      [
        (_name(label, one, programs), *_round(one), one['commit'])
        for table in TABLES
        for label, programs in _rows_of(records, table, devices).items()
        for one in programs
      ],
    )


def remarks(records: Records) -> list[str]:
  """Return a sentence about every program that does not compile or fit."""
  return [
    f'{name.partition("/")[2].rpartition("-")[0]}, {one["program"]}: '
    f'{one["error"]}'
    for name, programs in records.items()
    for one in programs
    if one['error']
  ]


def markdown(cells: Sequence[str]) -> str:
  """Return a line of a table.

  >>> markdown(('a', '1'))
  '| a | 1 |'
  """
  return f'| {" | ".join(cells)} |'


def _rows_of(records: Records, table: str, devices: str) -> Records:
  found = {}
  for name, programs in records.items():
    kind, _, rest = name.partition('/')
    label, _, own = rest.rpartition('-')
    if (kind, own) == (table, devices):
      found[label] = programs
  return found


def _table(heads, lines) -> Iterator[str]:
  """Yield a table without the columns that are empty."""
  columns = [
    (head, *cells)
    for head, *cells in zip(heads, *lines, strict=True)
    if any(cells)
  ]
  head, *rest = zip(*columns, strict=True)
  yield markdown(head)
  yield markdown(['---'] * len(head))
  yield from map(markdown, rest)
  yield ''


def _on_one_device(table, label, programs) -> Iterator[tuple[str, ...]]:
  rounds = [one for one in programs if one['program'] == 'round']
  for one in rounds:
    more = ()
    if table == 'models':
      name = f'{label}, `{CONFIGS[label][0]}`'
    else:
      name = _name(label, one, rounds)
      same = {
        other['program']: other
        for other in programs
        if other['stage'] == one['stage']
      }
      begin = same.get('begin')
      begins = '' if begin is None else _of(begin, 'compiles')
      more = _of(same.get('evaluation'), ''), begins
    yield name, *_round(one), *more, one['commit']


def _name(label, one, programs) -> str:
  return label if len(programs) == 1 else f'{label}, {one["stage"]}'


def _round(one: Record) -> tuple[str, ...]:
  chunk = one['clients_per_chunk']
  batch = f'{one["images_per_step"] // max(chunk, 1):.0f}'
  costs, mark = one.get('costs'), ''
  if not costs and one.get('step'):
    costs, mark = one['step'], ' †'
  work = ('', '')
  if costs:
    flops, moved = costs['flops'] / 1e9, costs['bytes'] / 1e6
    work = f'{number(flops)}{mark}', f'{number(moved)}{mark}'
  arguments = _mib(one, 'arguments') if one['compiles'] else FAILED
  temporary = _mib(one, 'temporary') if one['compiles'] else ''
  return batch, str(chunk), *work, arguments, temporary


def _of(one: Record | None, word: str) -> str:
  """Return the temporary memory of a program, or the word for one that is."""
  if one is None:
    return ''
  return (word or _mib(one, 'temporary')) if one['compiles'] else FAILED


def _mib(one: Record, part: str) -> str:
  return f'{one["memory"][part] / 2**20:,.1f}'
