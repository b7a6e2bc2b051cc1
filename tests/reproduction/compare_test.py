"""Our number beside a published one: when both agree."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.reproduction.cells import Cell, Published, Reading
from experiments.reproduction.compare import (
  Score,
  compare,
  measure,
  over_seeds,
  published_error,
  score_of,
)
from fedjax_pfl.core.types import Scores

PRINTED = Published(
  *('fedbabu', '13', 'cifar10', 'convnet4', 'fedavg', 100, 5, 0.1, 10),
  *('shards', 'initial_accuracy', {}, 50.0, 10.0),
)


def cell(**changes):
  return Cell(PRINTED._replace(**changes), {}, Reading('initial'))


def ours(means, stds=None, size=100):
  """Return our number of seeds with these means and deviations."""
  stds = stds or [None] * len(means)
  pairs = enumerate(zip(means, stds, strict=True))
  return over_seeds({seed: Score(*pair, size) for seed, pair in pairs})


def test_two_numbers_agree_within_twice_the_combined_error():
  one = ours([52.0], [10.0])
  assert one == (52.0, 10.0, 1.0, (0,))  # one run: that over its clients
  compared = compare(cell(), one)
  assert compared.difference == 2.0 and compared.agrees
  assert compared.tolerance == pytest.approx(2 * math.sqrt(1 + 1))
  assert not compare(cell(mean=49.1), one).agrees
  three = ours([50.0, 52.0, 54.0], [9.0, 10.0, 11.0])
  assert three.error == pytest.approx(2 / math.sqrt(3))
  # Two seeds are no error by themselves: equal by chance they had none.
  assert ours([50.0, 50.0], [6.0, 8.0]).error == pytest.approx(0.5)
  assert compare(cell(), None).ours is None and over_seeds({}) is None
  # Ours alone, where nothing is printed.
  assert compare(cell(mean=None), one) == (
    cell(mean=None),
    one,
    *[None] * 3,
    (),
    (),
  )
  # One number of a global model, and a published one without deviation.
  one = compare(cell(std=None, paper='superfed'), ours([46.0], size=0))
  assert (one.agrees, one.tolerance, one.difference) == (None, None, -4.0)


def test_a_pooled_number_counts_the_tests_of_its_clients():
  scores = Scores(np.array([5, 0]), np.array([10, 1000]))
  clients = SimpleNamespace(scores={'x': scores}, train_count=np.array([1, 0]))
  found = score_of(SimpleNamespace(clients=clients), Reading('x', 'pooled'))
  assert (found.mean, found.size) == (50, 10)


def test_an_unfinished_run_has_no_best_view(tmp_path):
  results = SimpleNamespace(key_of=str, paths={'run': tmp_path})
  one = SimpleNamespace(training='run')
  assert measure(one, Reading('mix:best'), results) is None


@pytest.mark.parametrize(
  ('changes', 'error'),
  [
    ({}, 1.0),  # over 100 clients
    ({'paper': 'fedconcat', 'table': '1'}, 10 / math.sqrt(3)),  # three seeds
    ({'paper': 'pfllib', 'table': '1'}, 10 / math.sqrt(3)),
    ({'paper': 'fedconcat', 'table': '3'}, 10.0),  # last rounds of one run
    ({'paper': 'superfed', 'std': None}, None),
  ],
)
def test_the_error_of_a_printed_mean(changes, error):
  assert published_error(PRINTED._replace(**changes)) == pytest.approx(error)
