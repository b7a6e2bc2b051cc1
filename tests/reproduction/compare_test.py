"""Our number beside a published one: when both agree."""

import math

import pytest

from fedjax_pfl.evaluation.differences import Score
from fedjax_pfl.reproduction.cells import Cell, Published, Reading
from fedjax_pfl.reproduction.compare import (
  compare,
  over_seeds,
  published_error,
)

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
  return over_seeds({seed: Score(1, *pair, size) for seed, pair in pairs})


def test_one_run_has_the_error_over_its_clients():
  one = ours([52.0], [10.0])
  assert one == (52.0, 10.0, 1.0, (0,))
  compared = compare(cell(), one)
  assert compared.difference == 2.0 and compared.agrees
  assert compared.tolerance == pytest.approx(2 * math.sqrt(1 + 1))
  assert not compare(cell(mean=49.1), one).agrees
  assert compare(cell(mean=54.8), one).agrees
  assert compare(cell(), None).ours is None and over_seeds({}) is None


@pytest.mark.parametrize(
  ('means', 'stds', 'size', 'error'),
  [
    ([50.0, 52.0, 54.0], [9.0, 10.0, 11.0], 100, 2 / math.sqrt(3)),
    # Two seeds are no error by themselves: equal by chance they had none.
    ([55.49, 55.50], None, 10_000, 0.35144),
    ([50.0, 60.0], None, 10_000, 5),
    ([50.0, 50.0], [6.0, 8.0], 100, 0.5),
    # One number of the server: that of its images.
    ([60.0], None, 10_000, math.sqrt(60 * 40 / 10_000)),
  ],
)
def test_the_error_of_our_mean(means, stds, size, error):
  assert ours(means, stds, size).error == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize(
  ('paper', 'table', 'std', 'error'),
  [
    ('fedbabu', '13', 10.0, 1.0),  # over 100 clients
    ('fedconcat', '1', 3.0, math.sqrt(3)),  # over three seeds
    ('fedconcat', '3', 3.0, 3.0),  # over the last rounds of one run
    ('superfed', '1', None, None),
  ],
)
def test_the_error_of_a_printed_mean(paper, table, std, error):
  printed = PRINTED._replace(std=std, paper=paper, table=table)
  assert published_error(printed) == pytest.approx(error)


def test_without_any_error_agreement_is_unknown():
  """One number of a global model, and a published one without deviation."""
  one = compare(cell(std=None, paper='superfed'), ours([46.0], size=0))
  assert (one.agrees, one.tolerance, one.difference) == (None, None, -4.0)
