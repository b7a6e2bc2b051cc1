"""What the bench prints: a table of cases, and the line of a bar."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH = 80
TITLES = {
  'training': 'Local training, a round of FedAvg',
  'evaluation': 'Fine-tuning evaluation, {epochs} epochs and {tests} tests',
}
SETTINGS = ('batch', 'clients_per_chunk', 'conv_impl', 'devices')
HEADS = (  # in two lines
  'clients\nx steps',
  'rounds\n/s',
  'images\n/s',
  '\nrange',
  'GFLOP/s\nof peak',
  'comp-\nile',
  'memory\nMiB',
  'torch\nx',
)


class Bar(NamedTuple):
  """A limit for a measurement, and what was measured; None: it could not be."""

  name: str
  measured: float | None
  bar: float
  unit: str
  sense: str  # 'at least', 'at most' or 'below'
  how: str = ''  # one sentence: what was measured, or why not

  @property
  def met(self) -> bool | None:
    """Return whether the bar is met; None if nothing was measured."""
    if self.measured is None:
      return None
    if self.sense == 'at least':
      return self.measured >= self.bar
    if self.sense == 'below':
      return self.measured < self.bar
    return self.measured <= self.bar

  def as_json(self) -> dict[str, object]:
    return {**self._asdict(), 'met': self.met}

  def lines(self) -> Iterator[str]:
    """Yield the printed line, and below it how it was measured."""
    want = f'{self.sense} {number(self.bar)}'
    got, verdict = '-', 'not measured'
    if self.measured is not None:
      got = f'{number(self.measured)} {self.unit}'
      verdict = 'met' if self.met else 'NOT MET'
    yield f'{self.name:34} {got:>18}   {want:>13}   {verdict}'
    yield from textwrap.wrap(
      self.how, WIDTH, initial_indent='    ', subsequent_indent='    '
    )


def table(rows: Sequence) -> Iterator[str]:
  """Yield the lines of a table of one kind of work, of `Measured`.

  Settings that are the same in all cases are in the title.
  """
  first, settings = rows[0], [_settings(row) for row in rows]
  varying = [
    name for name in SETTINGS if len({own[name] for own in settings}) > 1
  ]
  common = [
    f'{name} {settings[0][name]}'
    for name in SETTINGS
    if name not in varying and (name, settings[0][name]) != ('devices', '1')
  ]
  title = TITLES[first.work].format(**first.case._asdict())
  yield from textwrap.wrap(f'{title}: {", ".join(common)}', WIDTH)
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


def _numbers(row) -> tuple[str, ...]:
  torch, images = row.against_torch(), row.rate(row.images)
  gflops = number(row.rate(row.flops).median / 1e9)
  return (
    f'{row.case.clients} x {row.case.steps}',
    number(row.rate(1).median),
    number(images.median),
    f'{number(images.low)}-{number(images.high)}',
    f'{gflops} {100 * row.share_of_product().median:.0f}%',
    f'{row.compile_seconds:.0f} s',
    f'{row.memory / 2**20:,.0f}',
    f'{torch.median:.2f}' if torch else '',
  )
