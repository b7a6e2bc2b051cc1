"""The best setting on validation, of runs written by hand."""

import math

import finished_runs
import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Scores
from fedjax_pfl.training import divergence
from fedjax_pfl.training.divergence import Diverged
from fedjax_pfl.tuning.sweep import best_on_validation

COUNT = np.array([10, 10, 10, 10, 0])  # client 3 has no training examples


def make_group(folder, name, *correct, **changes):
  """Return the runs of a setting, a seed for each row of right answers."""
  return [
    finished_runs.make_run(
      folder / f'{name}{seed}',
      seed=seed,
      validation=Scores(np.array([*row, 9, 0]), COUNT),
      **changes,
    )
    for seed, row in enumerate(correct)
  ]


def test_the_best_mean_over_seeds_and_clients(tmp_path):
  low = make_group(tmp_path, 'low', (1, 2, 3), (2, 2, 2))
  best = make_group(tmp_path, 'best', (8, 9, 7), (9, 9, 9))
  second = make_group(tmp_path, 'second', (7, 8, 6), (6, 6, 6))
  choice = best_on_validation([low, best, second])
  assert (choice.best, choice.second) == (1, 2)
  assert choice.means == pytest.approx((20, 85, 65))
  half = 12.7062 * 10  # Student's t: leads of 10 and 30
  assert choice.lead[:3] == pytest.approx((20, 20 - half, 20 + half), abs=0.01)
  near = make_group(tmp_path, 'near', (7, 9, 9), (8, 10, 8))
  assert best_on_validation([best, near]).lead.sign == 0
  assert best_on_validation([near, near]).best == 0  # of equal ones the first
  # A second seed has the same clients: leads of 80, 30 and 40, as the first.
  rows, fixed = {'a': (9, 5, 7), 'b': (1, 2, 3)}, {'partition': 'natural'}
  pair = [make_group(tmp_path, *one, one[1], **fixed) for one in rows.items()]
  assert best_on_validation(pair).lead[1:3] == (30, 80)


def test_settings_that_diverged_are_not_chosen(tmp_path):
  good = make_group(tmp_path, 'good', (1, 1, 1), (1, 1, 1))
  hot = make_group(tmp_path, 'hot', (9, 9, 9), (9, 9, 9))
  (hot[1] / 'result.json').unlink()
  divergence.record(Diverged('NaN', hot[1]))
  choice = best_on_validation([hot, good])
  assert choice.best == 1 and choice.second is None
  assert math.isnan(choice.means[0]) and math.isnan(choice.lead.mean)
  with pytest.raises(BadInput, match=r'1 settings, in each .* diverged'):
    best_on_validation([hot])


def test_what_cannot_be_compared_is_refused(tmp_path):
  group = make_group(tmp_path, 'a', (1, 1, 1), (1, 1, 1))
  with pytest.raises(BadInput, match='the same seeds in each'):
    best_on_validation([group, group[:1]])
  with pytest.raises(BadInput, match='the same seeds in each'):
    best_on_validation([])
  plain = finished_runs.make_run(tmp_path / 'plain')
  with pytest.raises(BadInput, match=r'got .*plain.* without validation'):
    best_on_validation([[plain]])
