"""What the bench prints: a table of cases, and the line of a bar."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH = 80
TITLES = {
  'training': 'Local training, a round of FedAvg',
  'evaluation': 'Fine-tuning evaluation, {epochs} epochs and {tests} tests',
}
MET = {
  'at least': lambda measured, bar: measured >= bar,
  'at most': lambda measured, bar: measured <= bar,
}


class Bar(NamedTuple):
  """A limit for a measurement, and what was measured; None: it could not be."""

  name: str
  measured: float | None
  bar: float
  unit: str
  sense: str  # of MET
  how: str = ''  # one sentence: what was measured, or why not

  @property
  def met(self) -> bool | None:
    """Return whether the bar is met; None if nothing was measured."""
    if self.measured is None:
      return None
    return MET[self.sense](self.measured, self.bar)

  def lines(self) -> Iterator[str]:
    """Yield the printed line, and below it how it was measured."""
    got, verdict = '-', 'not measured'
    if self.measured is not None:
      got = f'{number(self.measured)} {self.unit}'
      verdict = 'met' if self.met else 'NOT MET'
    want = f'{self.sense} {number(self.bar)}'
    yield f'{self.name:34} {got:>18}   {want:>13}   {verdict}'
    yield from textwrap.wrap(
      self.how, WIDTH, initial_indent='    ', subsequent_indent='    '
    )


def table(rows: Sequence) -> Iterator[str]:
  """Yield the lines of a table of one kind of work, of `Measured`.

  Settings that are the same in all cases are in the title.
  """
  settings = [_settings(row) for row in rows]
  varying, common = [], []
  for name, first in settings[0].items():
    if any(own[name] != first for own in settings):
      varying.append(name)
    elif (name, first) != ('devices', '1'):
      common.append(f'{name} {first}')
  title = TITLES[rows[0].work].format(**rows[0].case._asdict())
  yield from textwrap.wrap(f'{title}: {", ".join(common)}', WIDTH)
  yield from columns(
    {
      '\nmodel': row.case.model,
      **{f'\n{name}': setting[name] for name in varying},
      **_numbers(row),
    }
    for row, setting in zip(rows, settings, strict=True)
  )


def columns(rows: Iterator[dict[str, str]]) -> Iterator[str]:
  """Yield heads, in two lines, and rows: {head: cell}, with aligned cells.

  Empty columns are left out; the first has its cells to the left.
  """
  rows = [*rows]
  shown = [head for head in rows[0] if any(row[head] for row in rows)]
  heads = zip(*(head.split('\n') for head in shown), strict=True)
  lines = [*heads, *([row[head] for head in shown] for row in rows)]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for first, *rest in lines:
    cells = map(str.rjust, rest, widths[1:])
    yield ' '.join([first.ljust(widths[0]), *cells]).rstrip()


def number(value: float) -> str:
  """Return a number with three digits.

  >>> [number(value) for value in (1.756, 20, 0.04, 1234.5)]
  ['1.76', '20', '0.04', '1,234']
  """
  if value >= 100:
    return f'{value:,.0f}'
  return f'{value:.1f}' if value >= 10 and value % 1 else f'{value:.3g}'


def _settings(row) -> dict[str, str]:
  from fedjax_pfl.models.ops.replace_layers import resolve

  case, chunk = row.case, str(row.clients_per_chunk)
  is_auto = case.clients_per_chunk == 'auto'
  return {
    'batch': str(case.batch),
    'clients_per_chunk': f'auto ({chunk})' if is_auto else chunk,
    'conv_impl': resolve(case.conv_impl),
    'devices': str(case.devices),
  }


def _numbers(row) -> dict[str, str]:
  torch, images = row.against_torch(), row.rate(row.images)
  gflops = number(row.rate(row.flops).median / 1e9)
  return {
    'clients\nx steps': f'{row.case.clients} x {row.case.steps}',
    'rounds\n/s': number(row.rate(1).median),
    'images\n/s': number(images.median),
    '\nrange': f'{number(images.low)}-{number(images.high)}',
    'GFLOP/s\nof peak': f'{gflops} {100 * row.share_of_product().median:.0f}%',
    'comp-\nile': f'{row.compile_seconds:.0f} s',
    'memory\nMiB': f'{row.memory / 2**20:,.0f}',
    'torch\nx': f'{torch.median:.2f}' if torch else '',
  }
