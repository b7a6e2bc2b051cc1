"""The difference of several numbers, and its 95 % interval. Pure numpy.

  difference = mean over seeds of sum_i sign_i mean_i

Of three seeds or more the interval is Student's over the seeds. Of fewer it is
over clients and leaves the spread over seeds out (with two seeds Student's t is
12.7 standard errors wide and decides nothing):

  paired      methods with the same clients are subtracted client by client, and
              the clients are drawn again (percentile bootstrap); clients of
              other partitions are drawn on their own
  unpaired    without the score of each client: 1.96 standard errors from the
              deviations over clients, as if each method had clients of its own;
              wider than the paired one where methods fail on the same clients
  images      of one number on a whole test set: 1.96 standard errors of shares
              of its images, as if each method had images of its own
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.summary import resampled_means

MIN_SEEDS = 3  # for an interval over seeds
NORMAL = 1.96
OVER_SEEDS, PAIRED, UNPAIRED = 'seeds', 'paired', 'unpaired'
OVER_IMAGES = 'images'


class Number(NamedTuple):
  """The number of one method with one seed, in percent."""

  sign: int  # with which it is in the difference
  mean: float
  std: float | None = None  # over clients; None: one number of the server
  size: int = 0  # clients or, without a std, test images; 0: unknown
  clients: np.ndarray | None = None  # [K]; NaN without an accuracy
  data: str = ''  # fingerprint of the clients: equal ones share them


class Interval(NamedTuple):
  low: float
  high: float
  kind: str  # one of the words above


def difference(seeds: Sequence[Sequence[Number]]) -> float:
  """Return the mean over seeds of the signed sums."""
  return float(np.mean(_sums(seeds)))


def interval(seeds: Sequence[Sequence[Number]]) -> Interval | None:
  """Return the 95 % interval of the difference; None if nothing gives one.

  >>> numbers = [Number(1, 84.9, 7.0, 100), Number(-1, 79.8, 8.0, 100)]
  >>> interval([numbers]).kind
  'unpaired'
  """
  assert seeds and all(seeds)
  if len(seeds) >= MIN_SEEDS:
    return _over_seeds(_sums(seeds))
  if all(one.clients is not None for numbers in seeds for one in numbers):
    return _paired(seeds)
  return _unpaired(seeds)


def paired_differences(numbers: Sequence[Number]) -> list[np.ndarray]:
  """Return the difference of every client, an array for each partition.

  Clients without an accuracy in one of the methods are left out.
  """
  assert all(one.clients is not None for one in numbers)
  groups: dict[str, np.ndarray] = {}
  for one in numbers:
    signed = one.sign * one.clients
    groups[one.data] = groups.get(one.data, 0.0) + signed
  return [group[np.isfinite(group)] for group in groups.values()]


def _sums(seeds: Sequence[Sequence[Number]]) -> list[float]:
  return [sum(one.sign * one.mean for one in numbers) for numbers in seeds]


def _over_seeds(sums: Sequence[float]) -> Interval:
  from scipy.special import stdtrit  # quantile of Student's t

  number = len(sums)
  error = float(np.std(sums, ddof=1)) / math.sqrt(number)
  half = float(stdtrit(number - 1, 0.975)) * error
  middle = float(np.mean(sums))
  return Interval(middle - half, middle + half, OVER_SEEDS)


def _paired(seeds: Sequence[Sequence[Number]]) -> Interval | None:
  # Seeds of one partition have the same clients, which are drawn together;
  # those of other partitions independently.
  groups = paired_differences([one for numbers in seeds for one in numbers])
  if any(group.size < 2 for group in groups):
    return None
  drawn = sum(
    resampled_means(group, seed=place) for place, group in enumerate(groups)
  )
  low, high = np.percentile(drawn / len(seeds), [2.5, 97.5])
  return Interval(float(low), float(high), PAIRED)


def _unpaired(seeds: Sequence[Sequence[Number]]) -> Interval | None:
  numbers = [one for numbers in seeds for one in numbers]
  if not all(one.size for one in numbers):
    return None
  variance = sum(_variance(one) for one in numbers)
  half = NORMAL * math.sqrt(variance) / len(seeds)
  middle = difference(seeds)
  kind = OVER_IMAGES if numbers[0].std is None else UNPAIRED
  return Interval(middle - half, middle + half, kind)


def _variance(one: Number) -> float:
  """Return the squared standard error of a mean, or of a share of images."""
  if one.std is None:
    return one.mean * (100 - one.mean) / one.size
  return one.std**2 / one.size
