"""Models of characters: against their equations, and what they may see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_close, normal

from fedjax_pfl.core.types import Batch
from fedjax_pfl.models import transformer
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


# ---- the transformer: what a position may see

SMALL = {'width': 8, 'blocks': 1, 'heads': 2}


def test_a_position_does_not_see_those_after_it():
  module = transformer.CharTransformer(11, **SMALL)
  tokens = jnp.arange(12).reshape(2, 6) % 11
  how = {'method': module.features}
  params = jax.jit(lambda: module.init(KEY(0), tokens, None, **how))()
  run = jax.jit(lambda x: module.apply(params, x, None, **how))
  differ = run(tokens) != run(tokens.at[:, 3].add(1))
  assert differ.any(axis=(0, 2)).tolist() == [False] * 3 + [True] * 3


def test_rotated_products_depend_on_the_distance():
  """And attention is the softmax of these, head by head."""
  rows = np.tile(normal(2, 1, 8), (1, 7, 1))
  q, k = np.asarray(jax.jit(transformer.rotated)(rows))
  products = q @ k.T
  for apart in range(-6, 7):
    same = products.diagonal(apart)
    np.testing.assert_allclose(same, same[0], rtol=1e-4, atol=1e-5)
  assert abs(products[0, 1] - products[0, 2]) > 1e-3
  qkv = normal(1, 5, 12)  # two heads of two numbers
  q, k, v = np.asarray(qkv[0]).reshape(5, 3, 2, 2).transpose(1, 2, 0, 3)
  weights = np.exp(q @ k.transpose(0, 2, 1) / 2**0.5)
  weights /= weights.sum(-1, keepdims=True)
  want = (weights @ v).transpose(1, 0, 2).reshape(5, 4)
  attention = jax.jit(transformer.attention, static_argnums=(1, 2))
  got = attention(qkv, 2, False)[0]
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
