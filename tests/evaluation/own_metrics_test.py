"""Metrics of the user's own: of all tests of a client, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused

import fedjax_pfl as pfl
from fedjax_pfl.evaluation.metrics import score_batches, score_view
from fedjax_pfl.evaluation.own_metrics import check_metrics, with_metrics

Y = 3
COUNTS = (5, 0, 7)
RNG = np.random.default_rng(0)
XS = [RNG.normal(size=(n, Y)).astype('float32') for n in COUNTS]
YS = [RNG.integers(0, Y, n) for n in COUNTS]
YS[0][:] = 1  # no example of class 0


def recall(logits, labels, mask):
  own = mask * (labels == 0)
  return (own * (logits.argmax(-1) == 0)).sum() / own.sum()


def margin(logits, labels, mask):
  """A metric that no sum over batches gives: of all rows in their order."""
  return jnp.max(jnp.where(mask > 0, logits[:, 0], -9)) + mask.sum()


METRICS = {'recall': recall, 'margin': margin}


def predict(view, x, mask):
  return x * view


@pytest.mark.parametrize(
  ('score_fn', 'batch_size'),
  [(score_view, 2), (score_view, 100), (score_batches, 2)],
)
def test_all_tests_of_a_client_whatever_the_batch(score_fn, batch_size):
  data = pfl.from_arrays(XS, YS)
  score = with_metrics(score_fn, METRICS)

  def one(index, count):
    test = data._replace(index=index, count=count)
    given = predict, jnp.ones(()), test, lambda x, key: x, batch_size
    return score(*given), score_fn(*given)

  found, plain = jax.jit(jax.vmap(one))(data.index, data.count)
  assert {*found.own} == {*METRICS} and plain.own is None
  np.testing.assert_array_equal(found.correct, plain.correct)
  for k, (x, y) in enumerate(zip(XS, YS, strict=True)):
    own = y == 0
    want = (x.argmax(-1) == 0)[own].mean() if own.any() else np.nan
    np.testing.assert_allclose(found.own['recall'][k], want, rtol=1e-6)
    if len(y):
      want = x[:, 0].max() + len(y)
      np.testing.assert_allclose(found.own['margin'][k], want, rtol=1e-6)


def test_the_mean_is_over_clients_where_it_is_finite():
  scores = pfl.Scores(
    correct=np.array([1, 2, 0, 1]),
    count=np.array([2, 2, 0, 2]),
    own={'recall': np.array([np.nan, 0.5, 9.0, 1.0])},
  )
  assert pfl.summarise(scores)['recall'] == 0.75
  assert pfl.summarise(scores, np.array([1, 1, 1, 0]))['recall'] == 0.5
  nowhere = pfl.summarise(scores, np.zeros(4))
  assert np.isnan(nowhere['recall']) and np.isnan(nowhere['mean'])


REFUSED = {
  'rows': ({'m': lambda z, y, m: z[:, 0]}, 'm that returns float32[3]'),
  'words': ({'m': lambda z, y, m: 'good'}, 'TypeError'),
  'truth': ({'m': lambda z, y, m: z.sum() > 0}, 'm that returns bool[]'),
  'no function': ({'m': 5}, "got 'int'"),
  'arguments': ({'m': lambda z, y: z.sum()}, 'TypeError'),
  'numpy': (
    {'m': lambda z, y, m: float(z.sum())},
    'own_metrics_test.py, line ',
  ),
  'taken': ({'loss': margin}, 'the name of a number that is there already'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_sentence_for(case):
  metrics, words = REFUSED[case]
  message = refused(check_metrics, metrics, Y)
  assert message.startswith('metrics: got ') and words in message
