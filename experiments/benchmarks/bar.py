"""A bar: a limit for a measurement, from above or below."""

from typing import NamedTuple


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
