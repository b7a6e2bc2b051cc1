"""Which methods of a partition can be told apart, as numbers and sentences.

All comparisons with a baseline in one partition share a level of 95 %; so do,
apart from these, the comparisons of all pairs of methods.
"""

from collections.abc import Mapping, Sequence
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
  pairs = [(one, other) for other in baselines for one in after if one != other]
  found = compare(after, pairs)
  against = {
    base: {one: found[one, other] for one, other in pairs if other == base}
    for base in baselines
  }
  best = max(after, key=lambda method: seed_means(after[method]).mean())
  return Board(partition, tuple(entries), against, best, _peers_of(best, after))


def compare(
  after: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Difference]:
  """Return the first minus the second of each pair; they hold together."""
  differences = np.stack([after[one] - after[other] for one, other in pairs])
  return dict(zip(pairs, simultaneous_differences(differences), strict=True))


def _peers_of(best: str, after: Mapping[str, np.ndarray]) -> tuple[str, ...]:
  """Return the methods that cannot be told from the best, of all pairs."""
  found = compare(after, [*combinations(after, 2)])
  return tuple(
    next(one for one in pair if one != best)
    for pair, difference in found.items()
    if best in pair and difference.sign == 0
  )


# ---- Sentences ---------------------------------------------------------------


def sentences(board: Board) -> list[str]:
  """Return the verdicts of a partition: the best, then each baseline."""
  mean = next(
    seed_means(entry.after).mean()
    for entry in board.entries
    if entry.method == board.best
  )
  others = len(next(iter(board.against.values())))
  words = (
    f'not distinguishable from it: {_names(board.peers)}.'
    if len(board.peers) < others
    else 'no method is distinguishable from it.'
  )
  if not board.peers:
    words = 'distinguishable from all others.'
  lines = [
    f'Highest: {display_name(board.best)}, {mean:.1f} % on average over '
    f'clients after personalisation; {words}'
  ]
  for baseline, found in board.against.items():
    lines.append(_against(baseline_name(baseline), found))
  for entry in board.entries:
    if entry.obstacle:
      lines.append(f'{display_name(entry.method)} {entry.obstacle}.')
  return lines


def baseline_name(method: str) -> str:
  """Return how a baseline is called: FedAvg is fine-tuned."""
  name = display_name(method)
  return f'{name} + fine-tuning' if method == 'fedavg' else name


def _against(name: str, found: Mapping[str, Difference]) -> str:
  """Return who is above a baseline, below it, and neither."""
  order = sorted(found, key=lambda method: -found[method].mean)
  kinds = {
    kind: [method for method in order if found[method].sign == sign]
    for sign, kind in VERDICTS.items()
  }
  parts = []
  for kind in (ABOVE, BELOW):
    words = ', '.join(
      f'{display_name(method)} ({found[method].mean:+.1f})'
      for method in kinds[kind]
    )
    parts.append(f'{kind}: {words or "none"}')
  open_ = f'not distinguishable from it: {_names(kinds[OPEN])}'
  return f'Against {name}, {parts[0]}; {parts[1]}; {open_}.'


def _names(methods: Sequence[str]) -> str:
  return ', '.join(map(display_name, methods)) or 'none'
