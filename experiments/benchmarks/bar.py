"""A bar: a limit for a measurement, from above or below."""

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from experiments.benchmarks.screen import WIDTH, number


class Bar(NamedTuple):
  """One bar and what was measured; None where it could not be."""

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
    if self.how:
      yield from textwrap.wrap(
        self.how, WIDTH, initial_indent='    ', subsequent_indent='    '
      )
