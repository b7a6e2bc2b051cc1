"""The tables of docs/accelerators.md, of stored records."""

from collections.abc import Iterator, Mapping, Sequence

from experiments.accelerators.hlo_costs import VERSION
from experiments.accelerators.rows import CONFIGS, TABLES
from experiments.accelerators.store import Record
from experiments.benchmarks.screen import number

HEAD = """# Compiled for accelerators

    make accelerators      # the compilers, 1.4 GB, and these tables

Written by `python experiments/accelerator_tables.py --write` from what
compilers for a TPU and an H100 said on a machine without either
([what the numbers mean](performance.md#on-accelerators-what-the-compiler-says)):
**nothing was run on an accelerator**. A step is one batch of all clients side
by side. "us an image" is the roofline in float32, "by cycles" the TPU
compiler's own estimate; "temporary" is the memory of a call beside arguments
and results. On the TPU what a client of a small network works on stays in fast
memory: hardly any bytes. Methods are those of `configs/digits.py`. A row is of
the commit that it names, and is compiled again when its program changes.
"""  # noqa: E501
Records = Mapping[str, Sequence[Record]]  # by the name of the row
TITLES = {
  'models': 'Models: a round on one device',
  'methods': 'Methods: rounds and evaluation on one device',
}
HEADS = (
  *('batch', 'side by side', 'kernels', 'GFLOP', 'MB an image'),
  *('us an image', 'by cycles', 'temporary MiB'),
)
MORE = {
  'models': (),
  'methods': ('evaluation: kernels', 'temporary MiB', 'beginning'),
}
MESH_HEADS = (
  *('', 'side by side', 'arguments MiB', 'temporary MiB', 'collectives'),
  'compiled at',
)


def as_markdown(stored: Mapping[str, Records]) -> str:
  """Return the page: {platform: records}."""
  lines = [HEAD]
  for records in stored.values():
    first = next((one for own in records.values() for one in own), None)
    if first is None:
      continue
    compilers = {one['compilers'] for own in records.values() for one in own}
    lines += [f'## {first["device"]}\n', f'{"; ".join(sorted(compilers))}.\n']
    lines += outdated(records)
    lines += tables(records)
    lines += [f'- {remark}' for remark in remarks(records)]
  return '\n'.join(lines).rstrip() + '\n'


def outdated(records: Records) -> list[str]:
  """Return a sentence about the rows that an earlier version counted."""
  commits = {
    one['commit']
    for own in records.values()
    for one in own
    if one.get('counting', 1) < VERSION  # the first stored no number
  }
  if not commits:
    return []
  return [
    f'The rows of {" and ".join(sorted(commits))} are to be compiled again: '
    'FLOPs and bytes are counted in another way today.\n'
  ]


def tables(records: Records) -> Iterator[str]:
  """Yield the lines of all tables of a platform."""
  for table in TABLES:
    own = _rows_of(records, table, '1')
    if own:
      yield f'### {TITLES[table]}\n'
      yield from _table(
        ('', *HEADS, *MORE[table], 'compiled at'),
        [
          line
          for label, programs in own.items()
          for line in _on_one_device(table, label, programs)
        ],
      )
  sizes = sorted({name.rpartition('-')[2] for name in records} - {'1'}, key=int)
  for devices in sizes:
    lines = [
      line
      for table in TABLES
      for label, programs in _rows_of(records, table, devices).items()
      for line in _on_a_mesh(label, programs)
    ]
    yield f'### On a mesh of {devices}\n'
    yield from _table(MESH_HEADS, lines)


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
    same = {
      other['program']: other
      for other in programs
      if other['stage'] == one['stage']
    }
    more = ()
    if table == 'methods':
      more = *_evaluation(same.get('evaluation')), _compiles(same.get('begin'))
    name = label if len(rounds) == 1 else f'{label}, {one["stage"]}'
    if table == 'models':
      name = f'{label}, `{CONFIGS[label][0]}`'
    yield name, *_round(one), *more, one['commit']


def _on_a_mesh(label, programs) -> Iterator[tuple[str, ...]]:
  for one in programs:
    name = label if len(programs) == 1 else f'{label}, {one["stage"]}'
    chunk = str(one['clients_per_chunk'])
    if not one['compiles']:
      yield name, chunk, '', '', 'does not compile', one['commit']
      continue
    moved = [
      f'{own["number"]:,.0f} {kind}, {number(own["bytes"] / 1e6)} MB'
      for kind, own in one['collectives'].items()
    ]
    yield (
      *(name, chunk, _mib(one, 'arguments'), _mib(one, 'temporary')),
      *('; '.join(moved) or 'none', one['commit']),
    )


def _round(one: Record) -> tuple[str, ...]:
  chunk = one['clients_per_chunk']
  batch = f'{one["images_per_step"] // max(chunk, 1):.0f}'
  step, images = one.get('step'), one['images_per_step']
  if not step:
    why = 'no loop' if one['compiles'] else 'does not compile'
    return batch, str(chunk), why, '', '', '', '', ''
  own = step['compiler_seconds']
  return (
    batch,
    str(chunk),
    f'{step["kernels"]:,.0f}',
    number(step['flops'] / 1e9),
    _moved(step['bytes'] / 1e6 / images),
    number(1e6 * step['seconds'] / images),
    number(1e6 * own / images) if own else '',
    _mib(one, 'temporary'),
  )


def _evaluation(one: Record | None) -> tuple[str, str]:
  if one is None:
    return '', ''
  if not one['compiles']:
    return 'does not compile', ''
  step = one['step'] or one['call']
  return f'{step["kernels"]:,.0f}', _mib(one, 'temporary')


def _compiles(one: Record | None) -> str:
  if one is None:
    return ''
  return 'compiles' if one['compiles'] else 'does not compile'


def _moved(megabytes: float) -> str:
  return number(megabytes) if megabytes >= 0.01 else 'below 0.01'


def _mib(one: Record, part: str) -> str:
  return f'{one["memory"][part] / 2**20:,.1f}'
