"""Scores by each rule against numpy; the models are tables of logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.types import ClientData, Scores
from fedjax_pfl.evaluation import test_selection
from fedjax_pfl.evaluation.grid import families, grid
from fedjax_pfl.evaluation.metrics import SCORINGS, is_in_top_k

pytestmark = pytest.mark.usefixtures('quick_compiler')
COUNT, CLASSES, SIZE = 12, 7, 5  # 5 + 5 + 2
RNG = np.random.default_rng(3)
LOGITS = np.round(2 * RNG.normal(size=(COUNT + 3, CLASSES)))  # with ties
Y = RNG.integers(0, CLASSES, COUNT + 3)  # the last three are padding
TEST = ClientData(
  jnp.arange(COUNT + 3),
  jnp.asarray(Y, jnp.int32),
  jnp.arange(COUNT + 3),
  jnp.asarray(COUNT),
)


def score(rule, test=TEST, size=SIZE):
  return SCORINGS[rule](
    lambda view, x, mask: view[x.astype(int)],
    jnp.asarray(LOGITS, jnp.float32),
    test,
    lambda x, key: x.astype(jnp.float32),
    size,
  )


def by_numpy(rows):
  """Return correct and top5 as shares, loss, ece and mce of these rows."""
  logits, y = LOGITS[rows], Y[rows]
  p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
  ranks = np.argsort(-logits, 1, kind='stable')
  confidence, hit = p.max(1), logits.argmax(1) == y
  place = np.ceil(confidence * 15)
  gaps = {
    b: abs(np.sum((confidence - hit)[place == b])) for b in np.unique(place)
  }
  return np.array(
    [
      hit.mean(),
      (ranks[:, :5] == y[:, None]).any(1).mean(),
      -np.log(p[np.arange(len(y)), y]).mean(),
      sum(gaps.values()) / len(y),
      max(gap / np.sum(place == b) for b, gap in gaps.items()),
    ]
  )


@pytest.mark.parametrize('rule', SCORINGS)
def test_scores_against_numpy(rule):
  got = score(rule)
  batches = [np.arange(first, min(first + 5, 12)) for first in (0, 5, 10)]
  want = {
    'exact': by_numpy(np.arange(12)),
    'batches': np.mean([by_numpy(rows) for rows in batches], 0),
    'whole_batches': np.mean([by_numpy(rows) for rows in batches[:2]], 0),
  }[rule]
  if rule == 'whole_batches':  # what is left out counts as wrong
    want[:2] *= 10 / 12
  assert 0 < want[0] < want[1] < 1
  shares = [got.correct / 12, got.top5 / 12, got.loss, got.ece, got.mce]
  np.testing.assert_allclose(shares, want, rtol=1e-5)
  assert got.count == 12


def test_a_client_without_tests_scores_zero_under_every_rule():
  none = TEST._replace(count=jnp.asarray(0))
  for rule in SCORINGS:
    assert not any(map(float, jax.tree.leaves(score(rule, none))))


def test_equal_logits_rank_by_class_and_nan_ranks_lowest():
  ties = jnp.zeros((6, 6))
  y = jnp.arange(6)
  assert is_in_top_k(ties, y).tolist() == [True] * 5 + [False]
  assert not is_in_top_k(jnp.full((6, 6), jnp.nan), y).any()
  assert is_in_top_k(ties[:4, :4], y[:4]).all()  # all four classes


@pytest.mark.parametrize('rule', SCORINGS)
def test_the_best_round_keeps_its_dtype(rule):
  """A resumed run expects it in the checkpoint."""
  scores = jax.tree.map(lambda leaf: leaf[None], score(rule))
  dtype = int if rule == 'exact' else float
  none = test_selection.init_best(1, dtype=dtype)
  best = test_selection.update_best(none, scores, 3)
  assert best.correct.dtype == none.correct.dtype
  assert best.correct == scores.correct


# ---- the best of a family of views


def family(*columns, count=(4, 4, 2)):
  """Return views mix_0.0, mix_0.5, .. with these correct answers."""
  count = np.array(count)
  return {
    f'mix_{0.5 * place}': Scores(
      np.array(correct),
      count,
      loss=np.arange(3.0) + place,
      top5=count - place,
    )
    for place, correct in enumerate(columns)
  }


def test_the_best_view_of_all_and_of_each():
  """Shares (0 .5 .5), (1 0 .5), (.5 .5 .5): the second ties with the third."""
  scores = family([0, 2, 1], [4, 0, 1], [2, 2, 1])
  got = test_selection.best_views(
    {'initial': scores['mix_0.0'], **scores}, np.array([9, 9, 9])
  )
  assert list(got) == ['mix']
  got = got['mix']
  assert got['together'] == {
    'view': 'mix_0.5',
    'mean': pytest.approx(50),
    'std': pytest.approx(100 * (1 / 6) ** 0.5),
    'std_sample': pytest.approx(50),
  }
  # 100, 50 and 50 %.
  assert got['each']['mean'] == pytest.approx(200 / 3)
  assert got['each']['std'] == pytest.approx(np.std([100, 50, 50]))
  # Clients choose 0.5, 0.0, 0.0: of these two columns the larger value.
  assert got['released']['accuracy'] == pytest.approx(200 / 3)
  assert got['released']['loss'] == pytest.approx(np.mean([1, 2, 3]))
  assert got['released']['top5'] == pytest.approx(100)


def test_clients_without_examples_are_left_out():
  scores = family([4, 0, 0], [0, 4, 0], [0, 3, 0], count=(4, 4, 0))
  got = test_selection.best_views(scores, np.array([0, 9, 9]))['mix']
  assert got['together'] == {
    'view': 'mix_0.5',
    'mean': 100,
    'std': 0,
    'std_sample': None,
  }
  assert test_selection.best_views(scores, np.zeros(3)) == {'mix': {}}


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
