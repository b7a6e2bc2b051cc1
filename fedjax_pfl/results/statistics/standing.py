"""Which of several is best, and which cannot be told apart from it.

For the methods of a comparison and for groups of runs: each is its name and the
accuracies of its clients by seed. They are paired in the seeds that both have;
the family is all pairs (`results/statistics/differences.py`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.choices import mean_of_clients
from fedjax_pfl.evaluation.measures import ACCURACY, Measure, negative_transfer
from fedjax_pfl.results.statistics.differences import (
  ABOVE,
  BELOW,
  OPEN,
  BySeed,
  Verdict,
  behind_best,
)

ALONE = 'local_only'  # the method that measures negative transfer
ONE_SEED = 'One seed names no winner.'
UNSHARED = 'They share no two seeds on the same data, so none is named best.'
ON_AVERAGE = 'on average over clients after personalisation'
MOST = 6  # names of those that are not distinguishable


class Place(NamedTuple):
  """A method or group, and how far it is behind the best one."""

  name: str
  mean: float  # over seeds, of the means over clients
  seeds: int
  is_best: bool
  below: float  # how far below the best
  verdict: Verdict | None  # the best minus it; None: they share no two seeds

  @property
  def is_open(self) -> bool:
    """Return whether seeds do not tell it from the best; or it is the best."""
    is_behind = self.verdict and self.verdict.is_ahead
    return self.is_best or bool(self.verdict and not is_behind)

  @property
  def words(self) -> str:
    """Return 'not distinguishable' where seeds are there to say so."""
    return self.verdict.word if self.verdict and self.is_open else ''


def rank(
  methods: Mapping[str, BySeed],
  same_clients: bool = False,
  measure: Measure = ACCURACY,
) -> list[Place]:
  """Return those with a finite mean, the best first; the others count, too."""
  means = {name: mean_over_seeds(seeds) for name, seeds in methods.items()}
  order = [name for name in means if math.isfinite(means[name])]
  order.sort(key=lambda name: -measure.sign * means[name])
  if not order:
    return []
  best, places = order[0], []
  verdicts = behind_best(methods, best, same_clients, measure)
  for name in order:
    verdict = verdicts.get(name)
    below = verdict.gap.mean if verdict else means[best] - means[name]
    number, is_best = len(methods[name]), name == best
    places.append(Place(name, means[name], number, is_best, below, verdict))
  return places


def mean_over_seeds(seeds: BySeed) -> float:
  """Return the mean over seeds of the means over clients; NaN of none."""
  means = [*map(mean_of_clients, seeds.values())]
  return float(np.mean(means)) if means else math.nan


def worse_than_alone(
  methods: Mapping[str, BySeed], alone: Sequence[str], sign: int = 1
) -> dict[str, float]:
  """Return the share of clients, in percent, that do better alone.

  Of all seeds that a method shares with those who train alone; of several with
  the best of them. {} without any.
  """
  order = lambda by_seed: sign * mean_over_seeds(by_seed)
  theirs = max((methods[x] for x in alone), key=order, default={})
  shares = {}
  for name, ours in methods.items():
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    if pairs and name not in alone:
      both = map(np.concatenate, zip(*pairs, strict=True))
      shares[name] = negative_transfer(*(sign * values for values in both))
  return shares


def undecided(places: Sequence[Place]) -> str:
  """Return why none of several is named best; '' if seeds decide, or of one."""
  if len(places) < 2 or any(place.verdict for place in places):
    return ''
  is_one = all(place.seeds == 1 for place in places)
  return ONE_SEED if is_one else UNSHARED


def lead(places: Sequence[Place], measure: Measure = ACCURACY) -> str:
  """Return who is best, or that this is not known, in a sentence."""
  if not places:
    return f'No client has a number: {measure.head}.'
  named = lambda place: f'{place.name}, {measure.said(place.mean)}'
  best, *others = places
  if not others:
    return f'{named(best)} {ON_AVERAGE}.'
  if reason := undecided(places):
    return f'{named(others[-1])} to {named(best)} {ON_AVERAGE}. {reason}'
  tested = [place for place in others if place.verdict]
  close = [place.name for place in tested if place.is_open]
  if not close:
    gap, second = tested[0].verdict.gap, tested[0].name
    side = ABOVE if gap.mean > 0 else BELOW
    low, high = sorted(measure.sign * end for end in (gap.low, gap.high))
    words = (
      f'{measure.gap(gap.mean)} {side} {second} (95 % interval '
      f'{measure.short(low)} to {measure.short(high)}), and distinguishable '
      'from all'
    )
  elif len(close) == len(others) > 1:
    words = 'no other is distinguishable from it'
  else:
    words = f'{OPEN} from it: {", ".join(shortened(close))}'
  rest = ''
  if untold := len(others) - len(tested):
    rest = f' Not compared, with one shared seed or none: {untold}.'
  end = 'Highest' if measure.sign > 0 else 'Lowest'
  return f'{end}: {named(best)} {ON_AVERAGE}; {words}.{rest}'


def shortened(names: list[str]) -> list[str]:
  """Return the first of many names, and how many more there are."""
  return [*names[:MOST], *[f'{len(names) - MOST} more'] * (len(names) > MOST)]
