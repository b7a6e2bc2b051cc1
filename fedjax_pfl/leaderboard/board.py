"""Which methods of a partition can be told apart, as numbers and sentences.

All comparisons with a baseline in one partition share a level of 95 %; so do,
apart from these, the comparisons of all pairs of methods.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.differences import (
  Difference,
  simultaneous_differences,
)
from fedjax_pfl.leaderboard.entries import Entry, seed_means
from fedjax_pfl.report.styles import display_name

ABOVE, BELOW, OPEN = 'above', 'below', 'not distinguishable'
VERDICTS = {1: ABOVE, -1: BELOW, 0: OPEN}  # by the sign of a difference


class Board(NamedTuple):
  """A partition: what its methods did, and what can be told apart."""

  partition: str
  entries: tuple[Entry, ...]
  # {baseline: {method: the method minus the baseline}}
  against: Mapping[str, Mapping[str, Difference]]
  best: str  # the method with the highest mean
  peers: tuple[str, ...]  # those that are not distinguishable from it


def make_board(
  partition: str, entries: Sequence[Entry], baselines: Sequence[str]
) -> Board | None:
  """Return the board; None without the numbers of both baselines."""
  after = {
    entry.method: entry.after
    for entry in entries
    if entry.after is not None and not entry.is_reference
  }
  if not {*baselines} <= {*after}:
    return None

  def compare(pairs):
    """Return the first minus the second of each pair; they hold together."""
    values = np.stack([after[one] - after[other] for one, other in pairs])
    return dict(zip(pairs, simultaneous_differences(values), strict=True))

  found = compare(
    [(one, base) for base in baselines for one in after if one != base]
  )
  against = {
    base: {one: value for (one, other), value in found.items() if other == base}
    for base in baselines
  }
  best = max(after, key=lambda method: seed_means(after[method]).mean())
  peers = tuple(
    one if other == best else other
    for (one, other), value in compare([*combinations(after, 2)]).items()
    if best in (one, other) and value.sign == 0
  )
  return Board(partition, tuple(entries), against, best, peers)


# ---- Sentences ---------------------------------------------------------------


def sentences(board: Board) -> list[str]:
  """Return the verdicts of a partition: the best, then each baseline."""
  after = {entry.method: entry.after for entry in board.entries}
  words = f'not distinguishable from it: {_names(board.peers)}.'
  if not board.peers:
    words = 'distinguishable from all others.'
  elif len(board.peers) == len(next(iter(board.against.values()))):
    words = 'no method is distinguishable from it.'
  return [
    f'Highest: {display_name(board.best)}, '
    f'{seed_means(after[board.best]).mean():.1f} % on average over '
    f'clients after personalisation; {words}',
    *(_against(base, found) for base, found in board.against.items()),
    *(
      f'{display_name(entry.method)} {entry.obstacle}.'
      for entry in board.entries
      if entry.obstacle
    ),
  ]


def baseline_name(method: str) -> str:
  """Return how a baseline is called: FedAvg is fine-tuned."""
  name = display_name(method)
  return f'{name} + fine-tuning' if method == 'fedavg' else name


def _against(baseline: str, found: Mapping[str, Difference]) -> str:
  """Return who is above a baseline, below it, and neither."""
  order = sorted(found, key=lambda method: -found[method].mean)
  above, below = (
    [
      f'{display_name(method)} ({found[method].mean:+.1f})'
      for method in order
      if found[method].sign == sign
    ]
    for sign in (1, -1)
  )
  return (
    f'Against {baseline_name(baseline)}, above: {", ".join(above) or "none"}; '
    f'below: {", ".join(below) or "none"}; not distinguishable from it: '
    f'{_names(method for method in order if found[method].sign == 0)}.'
  )


def _names(methods: Iterable[str]) -> str:
  return ', '.join(map(display_name, methods)) or 'none'
