"""Metrics by name: scikit-learn's numbers, c_index of all pairs one by one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.special import huber as of_residuals
from sklearn import metrics as sk

import fedjax_pfl as pfl
from fedjax_pfl.core.example_losses import cox, huber, logistic, squared
from fedjax_pfl.core.losses import batch_loss
from fedjax_pfl.core.types import Batch
from fedjax_pfl.data.batching import rows_in_order
from fedjax_pfl.data.client_data import client_of
from fedjax_pfl.evaluation import label_metrics as of
from fedjax_pfl.evaluation.metrics import tally

N, PADDED = 40, 7
RNG = np.random.default_rng(0)


def value(metric, z, y):
  """Return the metric with padding, whose outputs and labels are nonsense."""
  pad = lambda x, fill: np.concatenate(
    [x, np.full((PADDED, *x.shape[1:]), fill, x.dtype)]
  )
  fill = -1.0 if y.dtype.kind == 'f' else 0
  mask = np.arange(N + PADDED) < N
  arrays = pad(z, 9.0), pad(y, fill), mask.astype(np.float32)
  return float(jax.jit(metric)(*map(jnp.asarray, arrays)))


def scores(width):
  """Return outputs with many ties."""
  return np.round(RNG.normal(size=(N, width)) * 2).astype(np.float32) / 2


SCORES = {
  'auroc': partial(sk.roc_auc_score, multi_class='ovr'),
  'auprc': sk.average_precision_score,
  'brier': sk.brier_score_loss,
}
DECISIONS = {
  'macro_f1': partial(sk.f1_score, average='macro'),
  'balanced_accuracy': sk.balanced_accuracy_score,
  'accuracy': sk.accuracy_score,
}
NUMBERS = {
  'rmse': sk.root_mean_squared_error,
  'mae': sk.mean_absolute_error,
  'r2': sk.r2_score,
}


def theirs(name, y, p, decided):
  """Return scikit-learn's number for probabilities, or for decisions."""
  return SCORES[name](y, p) if name in SCORES else DECISIONS[name](y, decided)


@pytest.mark.parametrize('name', [*SCORES, *DECISIONS])
def test_of_four_classes(name):
  z = RNG.normal(size=(N, 4)).astype(np.float32)  # softmax would break ties
  y = RNG.integers(0, 4, N)
  wanted = theirs(name, y, softmax(z.astype(np.float64), axis=1), z.argmax(1))
  np.testing.assert_allclose(value(getattr(of, name), z, y), wanted, rtol=1e-5)


@pytest.mark.parametrize('name', [*SCORES, *DECISIONS])
def test_of_bits_and_of_two_classes(name):
  """Two classes with outputs (0, z) are the bit of z; several bits a mean."""
  z, y = scores(3), RNG.integers(0, 2, (N, 3))
  metric, bits = getattr(of, name), y.astype(np.float32)
  columns = zip(y.T, expit(z).T, z.T > 0, strict=True)
  each = [theirs(name, *column) for column in columns]
  np.testing.assert_allclose(value(metric, z, bits), np.mean(each), rtol=1e-5)
  pair = np.stack([0 * z[:, 0], z[:, 0] - 1e-3], axis=1)  # a tie is class 0
  np.testing.assert_allclose(value(metric, pair, y[:, 0]), each[0], rtol=2e-3)


@pytest.mark.parametrize('name', NUMBERS)
def test_of_numbers(name):
  z, y = scores(2), RNG.normal(size=(N, 2)).astype(np.float32)
  wanted = NUMBERS[name](y, z)
  np.testing.assert_allclose(value(getattr(of, name), z, y), wanted, rtol=1e-5)


def pairs(z, y):
  """Return Harrell's index, pair by pair."""
  right = number = 0
  for i in range(N):
    for j in range(N):
      later = y[i, 0] < y[j, 0] or (y[i, 0] == y[j, 0] and not y[j, 1])
      if y[i, 1] and later and i != j:
        number += 1
        right += (z[i] > z[j]) + 0.5 * (z[i] == z[j])
  return right / number


def events():
  time, event = RNG.integers(0, 15, N), RNG.integers(0, 2, N)
  return np.stack([time, event], axis=1).astype(np.float32)


def test_of_events():
  z, y = scores(1), events()
  np.testing.assert_allclose(value(of.c_index, z, y), pairs(z[:, 0], y))


def test_what_is_not_defined_is_nan():
  z, one = scores(2), np.zeros(N, int)
  for name in ('auroc', 'auprc'):
    assert np.isnan(value(getattr(of, name), z, one))
    assert np.isnan(value(getattr(of, name), z, np.ones((N, 2), np.float32)))
  assert np.isnan(value(of.r2, z, np.ones((N, 2), np.float32)))
  censored = events() * [1, 0]
  assert np.isnan(value(of.c_index, z, censored.astype(np.float32)))
  # Of two bits one is defined.
  y = np.stack([one, np.arange(N) % 2], axis=1).astype(np.float32)
  alone = value(of.auroc, z[:, 1:], y[:, 1:])
  np.testing.assert_allclose(value(of.auroc, z, y), alone)


@pytest.mark.parametrize('lost', [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_the_worst(lost):
  """Defined or not as before, by the labels; one row of many counts as one."""
  z, y = scores(4), RNG.integers(0, 4, N)
  numbers = RNG.normal(size=(N, 4)).astype(np.float32)
  bits, censored = (numbers > 0) * np.float32(1), events() * np.float32([1, 0])
  shares = 'accuracy', 'auroc', 'macro_f1', 'balanced_accuracy'
  for name, labels, wanted in (
    *((name, labels, 0) for name in shares for labels in (y, bits)),
    *(('brier', y, 2), ('brier', bits, 1), ('auprc', bits, bits.mean())),
    *(('rmse', numbers, np.inf), ('mae', numbers, np.inf)),
    *(('r2', numbers, -np.inf), ('r2', 0 * numbers, np.nan)),
    *(('c_index', events(), 0), ('c_index', censored, np.nan)),
    ('auroc', 0 * y, np.nan),
  ):
    outputs = z[:, : 1 if name == 'c_index' else 4] + np.float32(lost)
    metric = lambda z, y, mask, name=name: getattr(of, name)(
      of.or_worst(z, y), y, mask
    )
    found = value(metric, outputs, labels)
    assert found == pytest.approx(wanted, abs=1e-6, nan_ok=True), name
  right = (z.argmax(1) == y) & (np.arange(N) != 3)
  z[3] = lost
  sums = tally(jnp.asarray(z), jnp.asarray(y), jnp.ones(N, bool))
  assert sums.correct == right.sum() and sums.loss == np.inf


def test_logits_may_rule_a_class_out():
  z, y = np.array([[-np.inf, 1.0], [0, -np.inf]]), np.array([1, 1])
  np.testing.assert_array_equal(of.or_worst(jnp.asarray(z), jnp.asarray(y)), z)


# ---- losses ------------------------------------------------------------------


def by_hand_cox(z, y):
  """Return the mean over examples of Breslow's negative log-likelihood."""
  at_risk = [z[y[:, 0] >= time] for time in y[:, 0]]
  logs = np.array([np.log(np.exp(rows).sum()) for rows in at_risk])
  return np.mean(y[:, 1] * (logs - z))


LOSSES = (
  (squared, lambda z, y: sk.mean_squared_error(y, z)),
  (huber, lambda z, y: of_residuals(1, z - y).mean()),
  (logistic, lambda z, y: np.logaddexp(0, np.where(y > 0, -z, z)).mean()),
  (cox, lambda z, y: by_hand_cox(z[:, 0], y)),
)


@pytest.mark.parametrize('loss, wanted', LOSSES)
def test_losses_of_a_padded_batch(loss, wanted):
  """With gradients that are finite, and 0 where an example is padding."""
  z = scores(1 if loss is cox else 2)
  y = events() if loss is cox else RNG.normal(size=(N, 2)).astype(np.float32)
  y = (y > 0).astype(np.float32) if loss is logistic else y
  mask = jnp.arange(N + PADDED) < N
  z_all = jnp.pad(z, [(0, PADDED), (0, 0)], constant_values=3.0)
  y_all = jnp.pad(y, [(0, PADDED), (0, 0)], constant_values=-1.0)
  batch = Batch(z_all, y_all, mask.astype(float))
  total, slope = jax.value_and_grad(lambda z: batch_loss(z, batch, loss))(z_all)
  np.testing.assert_allclose(total, wanted(z, y), rtol=1e-5)
  assert np.isfinite(slope).all() and not slope[N:].any()


def test_who_is_padding_is_never_at_risk():
  """A padded row is one of the client's own, whose time must not count."""
  z, y = scores(1), events()
  data = pfl.from_arrays([np.zeros((N, 1)), np.zeros((9, 1))], [y, y[:9]])
  order = jnp.arange(N)
  _, labels, real = rows_in_order(client_of(data, 1), order, 0, 16)
  batch = Batch(None, labels, real.astype(float))
  padded = batch_loss(jnp.asarray(z[:16]), batch, cox)
  np.testing.assert_allclose(padded, by_hand_cox(z[:9, 0], y[:9]), rtol=1e-5)
