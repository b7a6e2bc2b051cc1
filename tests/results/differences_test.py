"""Differences and their intervals: sums by hand, and how often they cover."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from pages import ROOT

from experiments.reproduction.claims.verdicts import Judged
from experiments.reproduction.compare import Score
from fedjax_pfl.evaluation.measures import ACCURACY
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.statistics.board import make_board
from fedjax_pfl.results.statistics.differences import (
  ABOVE,
  LEVEL,
  WITHIN,
  behind_best,
  compare,
  error_of_clients,
  holm,
  over_seeds,
  within,
)

COUNTS = ROOT / 'results' / 'leaderboard' / 'demo_counts.csv'
NAN = math.nan


def test_the_rule_by_hand():
  """Seeds of 7 and 1; a client without a number; other clients a seed."""
  ours = {0: np.array([80.0, 60.0, NAN]), 1: np.array([50.0, 30.0])}
  theirs = {0: np.array([70.0, 56.0, NAN]), 1: np.array([49.0, 29.0])}
  pair = 'a', 'b'
  found = compare({'a': ours, 'b': theirs}, [pair, ('a', 'lost')])
  half = 12.7062 * 3  # Student's t: the means of the seeds are 7 and 1
  gap, p, p_within, _ = found.pop(pair)
  assert not found  # of a pair without numbers there is no verdict
  assert gap[:3] == pytest.approx((4, 4 - half, 4 + half), rel=1e-5)
  # It counts in the family: M is 2.
  assert p == pytest.approx(2 * gap.p) and p_within == 1
  # A seed that one of them lacks is in no difference; one seed is none.
  assert compare({'a': ours, 'b': {1: theirs[1], 2: theirs[0]}}, [pair]) == {}


def test_the_best_of_several_is_judged_over_all_pairs():
  rng = np.random.default_rng(0)
  clients = {seed: rng.normal(80, 10, 50) for seed in range(3)}
  means = {'a': 5.0, 'b': 4.99, 'c': 0.0, 'd': 0.0}
  methods = {
    name: {
      seed: own + mean + rng.normal(0, 0.1, 50) for seed, own in clients.items()
    }
    for name, mean in means.items()
  }
  found = behind_best(methods, 'a')
  assert [*found] == ['b', 'c', 'd']
  words = [verdict.word for verdict in found.values()]
  assert words == [WITHIN, ABOVE, ABOVE]
  alone = compare(methods, [('a', 'c')])['a', 'c']
  assert found['c'].gap == alone.gap and found['c'].p > 4 * alone.p


def test_a_p_of_seeds_that_do_not_differ_and_of_one():
  assert over_seeds([2.0, 2.0]).p == 0 and over_seeds([0.0, 0.0]).p == 1
  alone = over_seeds([2.0])
  assert math.isnan(alone.p) and alone.sign == 0


def test_holm_by_hand():
  """Of M = 4: 0.01 times 4, 0.02 times 3; 0.03 times 2, no lower; 1."""
  assert holm([0.03, 0.01, 0.02, NAN]) == pytest.approx([0.06, 0.04, 0.06, 1])


# Clients, the tests of each, their accuracy, seeds: as CIFAR-10, the demo, the
# digits, and the two of lite.
TESTED = [(50, 25, 0.57, 3), (90, 3, 0.97, 3), (20, 17, 0.99, 3)]
TESTED += [(20, 500, 0.85, 5), (5, 71, 0.99, 5)]
BOARDS, METHODS = 200, 35


@pytest.mark.parametrize('ratio', [0, 1, 10])
@pytest.mark.parametrize(('clients', 'tests', 'accuracy', 'seeds'), TESTED)
def test_boards_of_equal_methods_have_no_star(
  clients, tests, accuracy, seeds, ratio
):
  """`ratio` of variances: of the seeds to that of the tested images.

  By the spread over seeds alone 10 to 45 of 100 boards of the digits have one.
  """
  rng = np.random.default_rng(1)
  share = accuracy * (1 - accuracy) / (clients * tests)
  own = rng.normal(size=(BOARDS, METHODS, seeds, 1)) * np.sqrt(ratio * share)
  chance = np.clip(accuracy + own, 0, 1)
  correct = rng.binomial(tests, chance, (BOARDS, METHODS, seeds, clients))
  gaps = (correct[:, 1:] - correct[:, :1]) * (100 / tests)
  every = [
    [over_seeds(x.mean(1), error_of_clients(x)) for x in board]
    for board in gaps
  ]
  covers = [[x.low <= 0 <= x.high for x in board] for board in every]
  assert np.mean(covers) >= 0.95  # of 6,800 intervals
  ps = [[x.p for x in board] for board in every]
  starred = np.mean([min(holm(family)) < LEVEL for family in ps])
  assert starred <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / BOARDS)
  # Holm keeps them away where the seeds differ, the clients' error elsewhere.
  assert ratio < 10 or (np.min(ps, 1) < LEVEL).mean() > 0.15
  by_seeds = [[over_seeds(x.mean(1)).p for x in board] for board in gaps]
  assert (np.min(by_seeds, 1) < LEVEL).mean() > 0.4


@pytest.mark.parametrize(('mean', 'expected'), [(1.0, 0.05), (0.0, 0.99)])
def test_methods_a_point_apart_are_seldom_called_equivalent(mean, expected):
  draws = np.random.default_rng(0).normal(mean, 0.4, (1000, 5))
  share = np.mean([within(own, 1.0) < LEVEL for own in draws])
  assert share == pytest.approx(expected, abs=0.02)


def test_seeds_that_agree_by_chance_have_the_error_of_their_clients():
  gaps = np.array([[4.0, 0.0], [3.0, 1.0], [NAN, 2.0]])
  error = math.sqrt((8 / 2 + 2 / 2 + 0) / 9)  # each seed has a mean of 2
  one = over_seeds(np.nanmean(gaps, 1), error_of_clients(gaps))
  assert one.high - 2 == pytest.approx(4.30265 * error, abs=1e-4)
  assert over_seeds([2.0] * 3).p == 0 and one.p > 0.1


def test_boards_sweeps_and_claims_say_the_same_of_the_same_seeds():
  """Ditto minus FedAvg on the digits: three rules gave three verdicts."""
  about, found = stored_counts.read([COUNTS])
  ((partition, entries),) = found.items()
  standing = make_board(about, partition, entries).standings[ACCURACY]
  board = standing.against['ditto', 'fedavg'].gap[:3]
  assert board == pytest.approx([-2.34, -6.45, 1.77], abs=0.005)
  after = {one.method: one.after for one in entries}
  ours, theirs = after['ditto'].accuracy, after['fedavg'].accuracy
  lead = behind_best(
    {'b': dict(enumerate(ours)), 'a': dict(enumerate(theirs))}, 'a'
  )['b']
  assert board == pytest.approx([-lead.gap[at] for at in (0, 2, 1)])
  seeds = [
    [
      SimpleNamespace(score=Score(np.nanmean(own), 0.0, 0, own, f'{seed}'))
      for own in pair
    ]
    for seed, pair in enumerate(zip(ours, theirs, strict=True))
  ]
  terms = [SimpleNamespace(sign=sign) for sign in (1, -1)]
  claim = Judged(SimpleNamespace(terms=terms), '', None, (), measured=seeds)
  assert board == pytest.approx(claim.over_seeds()[:3])
