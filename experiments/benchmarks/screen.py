"""The printed table of cases."""

import textwrap
from collections.abc import Iterator, Sequence

from experiments.benchmarks.measure import Measured
from experiments.benchmarks.timing import Spread
from fedjax_pfl.models.ops.replace_layers import resolve

WIDTH = 80
TITLES = {
  'training': 'Local training, a round of FedAvg',
  'evaluation': 'Fine-tuning evaluation, {epochs} epochs and {tests} tests',
}
SETTINGS = ('batch', 'clients_per_chunk', 'conv_impl', 'dtype', 'devices')
HEADS = (  # in two lines
  'clients\nx steps',
  'rounds\n/s',
  'images\n/s',
  '\nrange',
  'GFLOP/s\nof peak',
  'GB/s\nof copy',
  'comp-\nile',
  'memory\nMiB',
  'torch\nx',
)


def table(rows: Sequence[Measured]) -> Iterator[str]:
  """Yield the lines of a table of one kind of work.

  Settings that are the same in all cases are in the title.
  """
  first = rows[0]
  settings = [_settings(row) for row in rows]
  varying = [
    name
    for name in SETTINGS
    if len({setting[name] for setting in settings}) > 1
  ]
  common = [
    f'{name} {settings[0][name]}'
    for name in SETTINGS
    if name not in varying and (name, settings[0][name]) != ('devices', '1')
  ]
  title = TITLES[first.work].format(**first.case._asdict())
  yield from textwrap.wrap(': '.join([title, ', '.join(common)]), WIDTH)
  heads = [f'\n{name}' for name in ('model', *varying)] + [*HEADS]
  lines = [*zip(*(head.split('\n') for head in heads), strict=True)]
  for row, setting in zip(rows, settings, strict=True):
    chosen = [setting[name] for name in varying]
    lines.append((row.case.model, *chosen, *_numbers(row)))
  yield from columns(lines, heads=2)


def columns(lines: Sequence[Sequence[str]], heads: int) -> Iterator[str]:
  """Yield the lines with aligned cells; empty columns are left out."""
  shown = [column for column in zip(*lines, strict=True) if any(column[heads:])]
  widths = [max(map(len, column)) for column in shown]
  for first, *rest in zip(*shown, strict=True):
    cells = [
      cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)
    ]
    yield ' '.join([first.ljust(widths[0]), *cells]).rstrip()


def number(value: float) -> str:
  """Return a number with three digits.

  >>> [number(value) for value in (1.756, 20, 0.04, 1234.5)]
  ['1.76', '20', '0.04', '1,234']
  """
  if value >= 100:
    return f'{value:,.0f}'
  return f'{value:.1f}' if value >= 10 and value % 1 else f'{value:.3g}'


def _settings(row: Measured) -> dict[str, str]:
  case = row.case
  chunk = str(row.clients_per_chunk)
  return {
    'batch': str(case.batch),
    'clients_per_chunk': f'auto ({chunk})'
    if case.clients_per_chunk == 'auto'
    else chunk,
    'conv_impl': resolve(case.conv_impl),
    'dtype': case.dtype,
    'devices': str(case.devices),
  }


def _numbers(row: Measured) -> tuple[str, ...]:
  torch = row.against_torch()
  images = row.rate(row.images)
  moved = ''
  if row.bytes is not None:
    moved = _with_share(row.rate(row.bytes), row.share('copy', row.bytes))
  return (
    f'{row.case.clients} x {row.case.steps}',
    number(row.rate(1).median),
    number(images.median),
    f'{number(images.low)}-{number(images.high)}',
    _with_share(row.rate(row.flops), row.share('product', row.flops)),
    moved,
    f'{row.compile_seconds:.0f} s',
    f'{row.memory / 2**20:,.0f}',
    f'{torch.median:.2f}' if torch else '',
  )


def _with_share(rate: Spread, share: Spread) -> str:
  return f'{number(rate.median / 1e9)} {100 * share.median:.0f}%'
