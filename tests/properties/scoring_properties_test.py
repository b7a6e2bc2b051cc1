"""Scores and summaries against scikit-learn and plain loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn import metrics

from fedjax_pfl.core.types import ClientData, Scores
from fedjax_pfl.evaluation import calibration
from fedjax_pfl.evaluation.metrics import score_classes, score_view
from fedjax_pfl.evaluation.summary import summarise

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROWS, CLASSES, BATCH = 13, 7, 5
LOGITS = arrays.arrays(  # all different in a row: scikit-learn breaks ties
  np.float32,  # in another way
  (ROWS, CLASSES),
  elements=st.floats(-20, 20, width=32),
).map(lambda table: table + np.linspace(0, 0.7, CLASSES, dtype=np.float32))
LABELS = arrays.arrays(np.int32, ROWS, elements=st.integers(0, CLASSES - 1))
COUNTS = st.integers(1, ROWS)


@functools.partial(jax.jit, static_argnums=0)
def score(score_fn, logits, y, count):
  """Return the scores of predictions that are rows of a table."""
  rows = jnp.arange(ROWS)
  return score_fn(
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
  got = score(score_view, logits, y, count)
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


@given(LOGITS, LABELS, COUNTS)
def test_classes_are_the_diagonal_of_the_confusion_matrix(logits, y, count):
  got = score(functools.partial(score_classes, CLASSES), logits, y, count)
  table = metrics.confusion_matrix(
    y[:count], logits[:count].argmax(1), labels=range(CLASSES)
  )
  np.testing.assert_array_equal(got.correct, np.diag(table))
  np.testing.assert_array_equal(got.count, table.sum(1))


@given(LOGITS, LABELS, COUNTS)
def test_calibration_errors_are_those_of_a_plain_loop(logits, y, count):
  """Bin after bin and example after example."""
  got = score(score_view, logits, y, count)
  confidence = np.asarray(jax.nn.softmax(logits).max(-1))[:count]
  hits = logits[:count].argmax(1) == y[:count]
  gaps, ece = [0.0], 0.0
  for number in range(calibration.NUM_BINS):
    low, high = np.float32([number, number + 1]) / calibration.NUM_BINS
    members = [i for i, c in enumerate(confidence) if low < c <= high]
    if members:
      sure = sum(float(confidence[i]) for i in members) / len(members)
      right = sum(bool(hits[i]) for i in members) / len(members)
      gaps.append(abs(sure - right))
      ece += len(members) / count * abs(sure - right)
  np.testing.assert_allclose([got.ece, got.mce], [ece, max(gaps)], atol=2e-5)
  assert 0 <= got.ece <= got.mce + 1e-6 <= 1 + 2e-6


@st.composite
def clients(draw):
  """Draw correct predictions, test and training examples of some clients."""
  size = draw(st.integers(1, 25))
  count = draw(arrays.arrays(int, size, elements=st.integers(0, 30)))
  trained = draw(arrays.arrays(int, size, elements=st.integers(0, 1)))
  share = draw(arrays.arrays(float, size, elements=st.floats(0, 1)))
  return Scores(np.rint(share * count).astype(int), count), trained


@given(clients())
def test_a_summary_is_that_of_the_single_predictions(drawn):
  """Of a row of correct and wrong predictions for every client."""
  scores, trained = drawn
  got = summarise(scores, trained)
  answers = [
    np.arange(count) < correct
    for correct, count, has in zip(*scores[:2], trained, strict=True)
    if count and has
  ]
  assert got['num_clients'] == len(answers)
  assert got['num_left_out'] == len(trained) - len(answers)
  if not answers:
    assert np.isnan([got['mean'], got['pooled'], got['worst_decile']]).all()
    return
  each = sorted(
    100 * metrics.accuracy_score(np.ones(len(own)), own) for own in answers
  )
  pooled = np.concatenate(answers)
  want = {
    'mean': sum(each) / len(each),
    'std': np.std(each),
    'pooled': 100 * metrics.accuracy_score(np.ones(len(pooled)), pooled),
    'worst_decile': np.mean(each[: -(-len(each) // 10)]),
  }
  for name, number in want.items():
    np.testing.assert_allclose(got[name], number, atol=1e-9)
  low, high = got['interval']
  assert each[0] - 1e-9 <= low <= high <= each[-1] + 1e-9
