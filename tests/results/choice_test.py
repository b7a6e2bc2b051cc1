"""The best setting on validation, of runs written by hand."""

import finished_runs
import numpy as np
import pytest

from fedjax_pfl.compare import sweep
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Scores
from fedjax_pfl.results.runs.run import read_group
from fedjax_pfl.results.statistics.differences import OPEN
from fedjax_pfl.runs import score_files
from fedjax_pfl.training import divergence
from fedjax_pfl.training.divergence import Diverged

COUNT = np.array([10, 10, 10, 10, 0])  # client 3 has no training examples
WORSE = Scores(np.zeros(5, int), COUNT)


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


def best_on_validation(folders):
  return sweep.best_on_validation([*map(read_group, folders)])


def test_the_best_mean_over_seeds_and_clients(tmp_path):
  low = make_group(tmp_path, 'low', (1, 2, 3), (2, 2, 2))
  best = make_group(tmp_path, 'best', (8, 9, 7), (9, 9, 9))
  second = make_group(tmp_path, 'second', (7, 8, 6), (6, 6, 6))
  choice = best_on_validation([low, best, second])
  assert (choice.best, choice.second) == (1, 2)
  assert [one.mean for one in choice.tried] == pytest.approx([20, 85, 65])
  half = 12.7062 * 10  # Student's t: leads of 10 and 30
  lead = choice.lead.gap[:3]
  assert lead == pytest.approx((20, 20 - half, 20 + half), abs=0.01)
  near = make_group(tmp_path, 'near', (7, 9, 9), (8, 10, 8))
  assert best_on_validation([best, near]).lead.word == OPEN
  assert best_on_validation([near, near]).best == 0  # of equal ones the first
  # A second seed has the same clients: leads of 80, 30 and 40, as the first.
  rows, fixed = {'a': (9, 5, 7), 'b': (1, 2, 3)}, {'partition': 'natural'}
  pair = [make_group(tmp_path, *one, one[1], **fixed) for one in rows.items()]
  lead = best_on_validation(pair).lead.gap
  assert lead.high - 50 == pytest.approx(12.7062 * np.sqrt(700 / 3), rel=1e-4)
  # One seed says nothing of others.
  assert best_on_validation([one[:1] for one in pair]).lead is None


def test_a_setting_is_chosen_in_the_view_that_is_best(tmp_path):
  """As a run chooses among its rounds, and a comparison among settings."""
  groups = []
  for name, short, long in (('low', 5, 6), ('high', 9, 7)):
    (path,) = make_group(tmp_path, name, (long,) * 3)
    views = {'finetuned_1': short, 'finetuned': long}
    scores = {
      f'validation/{view}': Scores(np.full(5, right), COUNT)
      for view, right in views.items()
    }
    for number, own in ((4, dict.fromkeys(scores, WORSE)), (16, scores)):
      score_files.write(path / 'scores', f'{number}', own)  # the last counts
    groups.append([path])
  choice = best_on_validation(groups)
  assert choice.best == 1 and choice.tried[1].view == 'finetuned_1'
  assert [one.mean for one in choice.tried] == pytest.approx([60, 90])


def test_settings_that_diverged_are_not_chosen(tmp_path):
  good = make_group(tmp_path, 'good', (1, 1, 1), (1, 1, 1))
  hot = make_group(tmp_path, 'hot', (9, 9, 9), (9, 9, 9))
  (hot[1] / 'result.json').unlink()
  divergence.record(Diverged('NaN', hot[1]))
  choice = best_on_validation([hot, good])
  assert choice.best == 1 and choice.second is None
  assert choice.tried[0] is None and choice.lead is None
  with pytest.raises(BadInput, match=r'1 settings, in each .* diverged'):
    best_on_validation([hot])
