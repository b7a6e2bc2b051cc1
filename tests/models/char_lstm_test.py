"""The LSTM of characters against its equations, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_close

from fedjax_pfl.core.types import Batch
from fedjax_pfl.models.char_lstm import LSTM
from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
L, B, F = 7, 3, 5


def by_steps(params, x):
  """Return h of the last layer by the equations, with jax's own gradient."""
  for i in (1, 2):
    w, u = (params['params'][f'{name}{i}_kernel'] for name in 'wu')
    h = c = jnp.zeros((B, F))
    rows = []
    for now in x:
      i_, f, g, o = jnp.split(now @ w + h @ u, 4, axis=1)
      c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i_) * jnp.tanh(g)
      h = jax.nn.sigmoid(o) * jnp.tanh(c)
      rows.append(h)
    x = jnp.stack(rows)
  return x


@pytest.mark.usefixtures('float64')
def test_values_and_gradients_are_those_of_the_equations():
  x, weights = (jax.random.normal(KEY(n), (L, B, F)) for n in (0, 1))
  module = LSTM(F, 2)
  params = jax.jit(module.init)(KEY(2), x)

  def gradient(fn):
    def value(params, x):
      return (weights * fn(params, x)).sum()

    return jax.jit(jax.value_and_grad(value, (0, 1)))(params, x)

  assert_close(gradient(module.apply), gradient(by_steps))


def test_a_character_sees_what_stands_before_it_alone():
  task = make_task('char_lstm', image_shape=(L,), num_classes=100)
  params = task.init(KEY(0))
  x = np.arange(B * L).reshape(B, L)
  other = np.where(np.arange(L) < 4, x, 99)
  logits = jax.jit(task.logits)
  one, two = (
    logits(params, jnp.asarray(own), jnp.ones(B)) for own in (x, other)
  )
  assert one.shape == (B * L, 100)
  same = np.isclose(one, two, atol=1e-6).all(1).reshape(B, L)
  assert same[:, :4].all() and not same[:, 4:].any()
  batch = Batch(jnp.asarray(x), jnp.zeros(B * L, int), jnp.ones(B * L))
  np.testing.assert_allclose(task.loss(params, batch, KEY(1)), np.log(100), 0.1)
