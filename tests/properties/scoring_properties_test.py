"""Scores against scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn import metrics

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation.metrics import score_view

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROWS, CLASSES, BATCH = 13, 7, 5
LOGITS = arrays.arrays(  # all different in a row: scikit-learn breaks ties
  np.float32,  # in another way
  (ROWS, CLASSES),
  elements=st.floats(-20, 20, width=32),
).map(lambda table: table + np.linspace(0, 0.7, CLASSES, dtype=np.float32))
LABELS = arrays.arrays(np.int32, ROWS, elements=st.integers(0, CLASSES - 1))
COUNTS = st.integers(1, ROWS)


@jax.jit
def score(logits, y, count):
  """Return the scores of predictions that are rows of a table."""
  rows = jnp.arange(ROWS)
  return score_view(
    lambda view, x, mask: view[x.astype(int)],
    logits,
    ClientData(rows, y, rows, count),
    lambda x, key: x.astype(jnp.float32),
    BATCH,
  )


def distinct(logits):
  return all(len(set(row)) == CLASSES for row in logits.tolist())


@given(LOGITS.filter(distinct), LABELS, COUNTS)
def test_scores_are_scikit_learns(logits, y, count):
  got = score(logits, y, count)
  own, all_classes = (y[:count], logits[:count]), range(CLASSES)
  right = metrics.accuracy_score(own[0], own[1].argmax(1), normalize=False)
  near = metrics.top_k_accuracy_score(
    *own, k=5, normalize=False, labels=all_classes
  )
  p = np.exp(own[1].astype(float))
  p /= p.sum(1, keepdims=True)
  assert (got.correct, got.top5, got.count) == (right, near, count)
  # Not log_loss: that cuts probabilities at the precision of their type.
  loss = -np.log(p[np.arange(count), own[0]]).mean()
  np.testing.assert_allclose(got.loss, loss, rtol=1e-4, atol=1e-5)
  if p.min() > 1e-12:
    want = metrics.log_loss(own[0], p, labels=all_classes)
    np.testing.assert_allclose(got.loss, want, rtol=1e-4, atol=1e-5)
