"""Metrics of the user's own: of all tests of a client, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_task, refused

import fedjax_pfl as pfl
from fedjax_pfl.evaluation.metrics import score_batches, score_view
from fedjax_pfl.evaluation.own_metrics import check_metrics, with_metrics

Y = 3
RNG = np.random.default_rng(0)
XS = [RNG.normal(size=(n, Y)).astype('float32') for n in (5, 0, 7)]
YS = [RNG.integers(0, Y, len(x)) for x in XS]
YS[0][:] = 1  # no example of class 0


def recall(logits, labels, mask):
  own = mask * (labels == 0)
  return (own * (logits.argmax(-1) == 0)).sum() / own.sum()


def margin(logits, labels, mask):
  """A metric that no sum over batches gives: of all rows in their order."""
  return jnp.max(jnp.where(mask > 0, logits[:, 0], -9)) + mask.sum()


METRICS = {'recall': recall, 'margin': margin}


@pytest.mark.parametrize(
  ('score_fn', 'batch_size'), [(score_view, 100), (score_batches, 2)]
)
def test_all_tests_of_a_client_whatever_the_batch(score_fn, batch_size):
  data = pfl.from_arrays(XS, YS)
  score = with_metrics(score_fn, METRICS)

  def predict(view, x, mask):
    return x * view

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


REFUSED = {
  'm that returns float32[3]': {'m': lambda z, y, m: z[:, 0]},
  'own_metrics_test.py, line ': {'m': lambda z, y, m: float(z.sum())},
  'the name of a number that is there already': {'loss': margin},
}


@pytest.mark.parametrize('words', REFUSED)
def test_sentence_for(words):
  message = refused(check_metrics, REFUSED[words], make_task())
  assert message.startswith('metrics: got ') and words in message
