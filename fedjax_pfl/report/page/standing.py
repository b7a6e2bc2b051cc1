"""Which method is best, and which cannot be told apart from it.

A difference is that of the means over clients of each seed that both have on
the same data, by Student's paired t with an error not below that of the
clients; Holm's p over all pairs decides, as on the leaderboard. With one seed
nothing is decided: `evaluation/differences.py`.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.differences import (
  LEVEL,
  Difference,
  holm,
  over_paired_clients,
)
from fedjax_pfl.report.page.groups import Group

OPEN = 'not distinguishable'
ONE_SEED = 'One seed names no winner.'
MOST = 4  # names in the lead
Clients = dict[tuple, np.ndarray]  # by seed and data, the accuracies [K]


class Place(NamedTuple):
  """A group, and how far it is behind the best one."""

  group: Group
  mean: float  # of its clients, after personalisation
  behind: Difference | None  # in points; None: it is the best
  is_open: bool  # it cannot be told apart from the best; the best itself, too

  @property
  def is_decided(self) -> bool:
    """Return whether it has the seeds for a verdict."""
    return self.behind is not None and self.behind.has_interval

  @property
  def words(self) -> str:
    """Return 'not distinguishable' where seeds are there to say so."""
    return OPEN if self.is_open and self.is_decided else ''


def ranked(groups: Sequence[Group]) -> list[Place]:
  """Return the groups with a finite mean, the best first."""
  known = [(group.mean(group.after, 'mean'), group) for group in groups]
  known = [one for one in known if math.isfinite(one[0])]
  known.sort(key=lambda one: -one[0])
  clients = {group.label: _accuracies(group) for _, group in known}
  gaps = [
    _difference(clients[one.label], clients[other.label], mean - less)
    for (mean, one), (less, other) in itertools.combinations(known, 2)
  ]
  # The first pairs are those of the best.
  rows = zip(known, [None, *gaps], [1.0, *holm(gaps)], strict=False)
  return [Place(group, mean, gap, p >= LEVEL) for (mean, group), gap, p in rows]


def lead(groups: Sequence[Group]) -> str:
  """Return who is best, or that this is not known, in a sentence."""
  places = ranked(groups)
  if not places:
    return 'No client has an accuracy.'
  best, *others = places
  if not others:
    return _alone(best)
  where = 'on average over clients'
  if not any(one.is_decided for one in others):
    last = others[-1]
    return f'{_named(last)} to {_named(best)} {where}. {ONE_SEED}'
  peers = [one for one in others if one.is_open]
  if not peers:
    second = others[0].behind
    return (
      f'{_named(best)} {where}, {second.mean:.1f} points above '
      f'{others[0].group.label} (95 % interval {second.low:.1f} to '
      f'{second.high:.1f}).'
    )
  names = [_named(one) for one in (best, *peers)]
  if len(names) > MOST:
    names[MOST:] = [f'{len(names) - MOST} more']
  return f'Highest and {OPEN}: {", ".join(names[:-1])} and {names[-1]}.'


def _alone(place: Place) -> str:
  group, where = place.group, 'on average over clients'
  if group.before is None:
    return f'{group.label}: {place.mean:.1f}\u00a0% {where}.'
  before = f'{group.mean(group.before, "mean"):.1f}\u00a0% {where}'
  after = f'{place.mean:.1f}\u00a0% after it'
  return f'{group.label}: {before} before personalisation, {after}.'


def _named(place: Place) -> str:
  return f'{place.group.label} {place.mean:.1f}\u00a0%'


def _difference(ours: Clients, theirs: Clients, mean: float) -> Difference:
  """Return the difference; with two shared seeds or more, an interval."""
  shared = [key for key in ours if key in theirs]
  if len(shared) < 2:
    return Difference(mean)
  gaps = [ours[key] - theirs[key] for key in shared]
  rows = itertools.zip_longest(*gaps, fillvalue=math.nan)
  return over_paired_clients(np.array([*rows]).T)


def _accuracies(group: Group) -> Clients:
  found = {}
  for run, view in zip(group.runs, group.after, strict=True):
    # The data without the model that a run began with.
    data, own = (
      str(run.record.get('data')).partition('+')[0],
      run.accuracy(view),
    )
    found[run.seed, data, len(own)] = own
  return found
