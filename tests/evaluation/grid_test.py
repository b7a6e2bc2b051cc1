"""Views that are members of a family, and their tables."""

import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.grid import families, grid


def test_families_are_views_that_differ_in_a_number():
  views = ['mix_1.0', 'initial', 'mix_0.0', 'finetuned', 'mix_0.1']
  assert families(views) == {'mix': ['mix_0.0', 'mix_0.1', 'mix_1.0']}
  views = ['finetuned_10', 'finetuned_2', 'finetuned', 'mix_0.5', 'a_b_1']
  assert families(views) == {'finetuned': ['finetuned_2', 'finetuned_10']}


def test_a_grid_is_a_table_of_clients_and_numbers():
  scores = {
    f'mix_{value}': Scores(np.array([value, 5]), np.array([9, 9]))
    for value in (3, 1, 2)
  }
  values, table = grid(scores, 'mix')
  assert values.tolist() == [1, 2, 3]
  assert table.correct.tolist() == [[1, 2, 3], [5, 5, 5]]
  assert table.count.shape == (2, 3) and table.loss is None
