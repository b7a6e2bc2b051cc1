"""What a campaign found, and how it draws what it tries."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import hypothesis
from hypothesis import strategies as st


class Outcome(NamedTuple):
  """How many faults were tried and how many ended well; the rest in words."""

  name: str  # of what was tried: 'settings', 'killed while training'
  tried: int
  well: int
  failures: tuple[str, ...] = ()  # how to try each of the others again


def outcome_of(name: str, ends: Iterable[str]) -> Outcome:
  """Return the outcome of trials, each '' or what is wrong with its end."""
  ends = [*ends]
  return Outcome(name, len(ends), ends.count(''), tuple(filter(None, ends)))


def draw_many(strategy: st.SearchStrategy, count: int, seed: int) -> list[Any]:
  """Return so many values of a strategy; equal ones for equal seeds."""
  drawn = []

  @hypothesis.seed(seed)
  @hypothesis.settings(
    max_examples=count,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  @hypothesis.given(strategy)
  def take(value):
    drawn.append(value)

  take()
  return drawn[:count]
