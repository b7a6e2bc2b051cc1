"""Which method is best, and which cannot be told apart from it.

A difference is that of the means over clients of each seed that both have on
the same data, by Student's paired t with an error not below that of the
clients; Holm's p over all such differences decides. With one shared seed there
is none: `results/statistics/differences.py`.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.fairness import negative_transfer
from fedjax_pfl.results.runs.groups import Group
from fedjax_pfl.results.statistics.differences import (
  LEVEL,
  Difference,
  holm,
  over_paired_clients,
)

ALONE = 'local_only'
OPEN = 'not distinguishable'
ONE_SEED = 'One seed names no winner.'
UNSHARED = 'They share no two seeds on the same data, so none is named best.'
MOST = 4  # names in the lead


class Place(NamedTuple):
  """A group, and how far it is behind the best one."""

  group: Group
  mean: float  # of its clients, after personalisation
  behind: Difference | None  # in points; None: it is the best
  is_open: bool  # seeds do not tell it from the best; or it is the best

  @property
  def is_decided(self) -> bool:
    """Return whether it has the seeds for a verdict."""
    return self.behind is not None and self.behind.has_interval

  @property
  def words(self) -> str:
    """Return 'not distinguishable' where seeds are there to say so."""
    return OPEN if self.is_open and self.behind else ''


def ranked(groups: Sequence[Group]) -> list[Place]:
  """Return the groups with a finite mean, the best first."""
  known = [(group.mean(group.after, 'mean'), group) for group in groups]
  known = [one for one in known if math.isfinite(one[0])]
  known.sort(key=lambda one: -one[0])
  gaps = [_difference(known[0], one) for one in known[1:]]
  ps = iter(holm([gap for gap in gaps if gap.has_interval]))
  rows = zip(known, [None, *gaps], strict=False)  # without any there is no best
  return [
    Place(group, mean, gap, not gap or (gap.has_interval and next(ps) >= LEVEL))
    for (mean, group), gap in rows
  ]


def worse_than_alone(groups: Sequence[Group]) -> dict[str, float]:
  """Return the share of the clients of each group, in percent, by its label.

  Of all seeds that it shares with local_only on the same data; of several
  groups of local_only with the best. {} without any.
  """
  alone = [group for group in groups if group.first.method == ALONE]
  if not alone:
    return {}
  best, found = max(alone, key=lambda one: one.mean(one.after, 'mean')), {}
  theirs = _accuracies(best)
  for group in groups:
    ours = _accuracies(group)
    keys = [key for key in ours if key in theirs]
    if group.first.method != ALONE and keys:
      pair = ([one[key] for key in keys] for one in (ours, theirs))
      found[group.label] = negative_transfer(*map(np.concatenate, pair))
  return found


def undecided(places: Sequence[Place]) -> str:
  """Return why none of several is named best; '' if seeds decide, or of one."""
  if len(places) < 2 or any(one.is_decided for one in places):
    return ''
  is_one = all(len(one.group.runs) == 1 for one in places)
  return ONE_SEED if is_one else UNSHARED


def lead(groups: Sequence[Group]) -> str:
  """Return who is best, or that this is not known, in a sentence."""
  places = ranked(groups)
  if not places:
    return 'No client has an accuracy.'
  best, *others = places
  if not others:
    return _alone(best)
  where = 'on average over clients'
  tested = [one for one in others if one.is_decided]
  if not tested:
    ends = f'{_named(others[-1])} to {_named(best)}'
    return f'{ends} {where}. {undecided(places)}'
  rest = ''
  if untold := len(others) - len(tested):
    rest = f' Not compared, with one shared seed or none: {untold}.'
  names = [_named(one) for one in (best, *tested) if one.is_open]
  if len(names) == 1:
    second, name = tested[0].behind, tested[0].group.label
    ends = f'95 % interval {second.low:.1f} to {second.high:.1f}'
    ahead = f'{second.mean:.1f} points above {name} ({ends})'
    return f'{names[0]} {where}, {ahead}.{rest}'
  if len(names) > MOST:
    names[MOST:] = [f'{len(names) - MOST} more']
  return f'Highest and {OPEN}: {", ".join(names[:-1])} and {names[-1]}.{rest}'


def _alone(place: Place) -> str:
  group, where = place.group, 'on average over clients'
  if group.before is None:
    return f'{group.label}: {place.mean:.1f}\u00a0% {where}.'
  before = f'{group.mean(group.before, "mean"):.1f}\u00a0% {where}'
  after = f'{place.mean:.1f}\u00a0% after it'
  return f'{group.label}: {before} before personalisation, {after}.'


def _named(place: Place) -> str:
  return f'{place.group.label} {place.mean:.1f}\u00a0%'


def _difference(best: tuple, other: tuple) -> Difference:
  """Return the first (mean, group) minus the second; two seeds: an interval."""
  ours, theirs = _accuracies(best[1]), _accuracies(other[1])
  gaps = [ours[key] - theirs[key] for key in ours if key in theirs]
  if len(gaps) < 2:
    return Difference(best[0] - other[0])
  rows = itertools.zip_longest(*gaps, fillvalue=math.nan)
  return over_paired_clients(np.array([*rows]).T)


def _accuracies(group: Group) -> dict[tuple, np.ndarray]:
  """Return {(seed, its data, K): the accuracies [K]}."""
  found = {}
  for run, view in zip(group.runs, group.after, strict=True):
    own = run.accuracy(view)
    found[run.seed, run.data, len(own)] = own
  return found
