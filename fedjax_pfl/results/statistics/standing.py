"""Which group of runs is best, and which cannot be told apart from it.

Groups are paired in the seeds that both have on the same data, by the rule of
`results/statistics/differences.py`; the family is all pairs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.fairness import negative_transfer
from fedjax_pfl.results.runs.groups import Group
from fedjax_pfl.results.statistics.differences import (
  ABOVE,
  OPEN,
  Verdict,
  behind_best,
)

ALONE = 'local_only'
ONE_SEED = 'One seed names no winner.'
UNSHARED = 'They share no two seeds on the same data, so none is named best.'
MOST = 4  # names in the lead


class Place(NamedTuple):
  """A group, and how far it is behind the best one."""

  group: Group
  mean: float  # of its clients, after personalisation
  is_best: bool
  below: float  # points below the best
  verdict: Verdict | None  # the best minus it; None: they share no two seeds

  @property
  def is_open(self) -> bool:
    """Return whether seeds do not tell it from the best; or it is the best."""
    is_above = self.verdict and self.verdict.word == ABOVE
    return self.is_best or bool(self.verdict and not is_above)

  @property
  def words(self) -> str:
    """Return 'not distinguishable' where seeds are there to say so."""
    return self.verdict.word if self.verdict and self.is_open else ''


def ranked(groups: Sequence[Group]) -> list[Place]:
  """Return the groups with a finite mean, the best first."""
  known = [(group.mean(group.after, 'mean'), group) for group in groups]
  known = [one for one in known if math.isfinite(one[0])]
  known.sort(key=lambda one: -one[0])
  if not known:
    return []
  (highest, best), methods = known[0], {}
  for _, group in known:
    methods[group.label] = group.accuracy_by_seed()
  same_clients = all(group.first.has_same_clients for _, group in known)
  verdicts = behind_best(methods, best.label, same_clients)
  places = []
  for mean, group in known:
    verdict = verdicts.get(group.label)
    below = verdict.gap.mean if verdict else highest - mean
    places.append(Place(group, mean, group is best, below, verdict))
  return places


def worse_than_alone(groups: Sequence[Group]) -> dict[str, float]:
  """Return the share of the clients of each group, in percent, by its label.

  Of all seeds that it shares with local_only on the same data; of several
  groups of local_only with the best. {} without any.
  """
  alone = [group for group in groups if group.first.method == ALONE]
  if not alone:
    return {}
  best, found = max(alone, key=lambda one: one.mean(one.after, 'mean')), {}
  theirs = best.accuracy_by_seed()
  for group in groups:
    ours = group.accuracy_by_seed()
    keys = [key for key in ours if key in theirs]
    if group.first.method != ALONE and keys:
      pair = ([one[key] for key in keys] for one in (ours, theirs))
      found[group.label] = negative_transfer(*map(np.concatenate, pair))
  return found


def undecided(places: Sequence[Place]) -> str:
  """Return why none of several is named best; '' if seeds decide, or of one."""
  if len(places) < 2 or any(one.verdict for one in places):
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
  tested = [one for one in others if one.verdict]
  if not tested:
    ends = f'{_named(others[-1])} to {_named(best)}'
    return f'{ends} {where}. {undecided(places)}'
  rest = ''
  if untold := len(others) - len(tested):
    rest = f' Not compared, with one shared seed or none: {untold}.'
  names = [_named(one) for one in (best, *tested) if one.is_open]
  if len(names) == 1:
    second, name = tested[0].verdict.gap, tested[0].group.label
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
