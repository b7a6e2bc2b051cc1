"""What the bench prints: the line of a bar."""

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

WIDTH = 80
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

  def lines(self) -> Iterator[str]:
    """Yield the printed line, and below it how it was measured."""
    got, verdict = '-', 'not measured'
    if self.measured is not None:
      got = f'{number(self.measured)} {self.unit}'
      is_met = MET[self.sense](self.measured, self.bar)
      verdict = 'met' if is_met else 'NOT MET'
    want = f'{self.sense} {number(self.bar)}'
    yield f'{self.name:34} {got:>18}   {want:>13}   {verdict}'
    yield from textwrap.wrap(
      self.how, WIDTH, initial_indent='    ', subsequent_indent='    '
    )


def number(value: float) -> str:
  """Return a number with three digits.

  >>> [number(value) for value in (1.756, 20, 0.04, 1234.5)]
  ['1.76', '20', '0.04', '1,234']
  """
  if value >= 100:
    return f'{value:,.0f}'
  return f'{value:.1f}' if value >= 10 and value % 1 else f'{value:.3g}'
