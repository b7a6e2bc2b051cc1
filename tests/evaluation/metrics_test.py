"""Scores by each rule against numpy; the models are tables of logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation.metrics import SCORINGS, is_in_top_k

pytestmark = pytest.mark.usefixtures('quick_compiler')
COUNT, CLASSES, SIZE = 12, 7, 5  # 5 + 5 + 2
RNG = np.random.default_rng(3)
LOGITS = np.round(2 * RNG.normal(size=(COUNT + 3, CLASSES)))  # with ties
Y = RNG.integers(0, CLASSES, COUNT + 3)  # the last three are padding
ALL = np.arange(COUNT + 3)
TEST = ClientData(
  *jax.device_put((ALL, Y.astype(np.int32), ALL, np.asarray(COUNT)))
)


def score(rule, test=TEST):
  return SCORINGS[rule](
    lambda view, x, mask: view[x.astype(int)],
    jnp.asarray(LOGITS, jnp.float32),
    test,
    lambda x, key: x.astype(jnp.float32),
    SIZE,
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
  # Of a client without tests all is zero.
  none = score(rule, TEST._replace(count=jnp.asarray(0)))
  assert not any(map(float, jax.tree.leaves(none)))


def test_equal_logits_rank_by_class_and_nan_ranks_lowest():
  ties = jnp.zeros((6, 6))
  y = jnp.arange(6)
  assert is_in_top_k(ties, y).tolist() == [True] * 5 + [False]
  assert not is_in_top_k(jnp.full((6, 6), jnp.nan), y).any()
  assert is_in_top_k(ties[:4, :4], y[:4]).all()  # all four classes
