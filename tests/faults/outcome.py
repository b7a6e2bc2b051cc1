"""What a campaign found."""

from typing import NamedTuple


class Outcome(NamedTuple):
  """How many faults were tried and how many ended well; the rest in words."""

  name: str  # of what was tried: 'settings', 'killed while training'
  tried: int
  well: int
  failures: tuple[str, ...] = ()  # how to try each of the others again
