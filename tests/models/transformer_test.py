"""The transformer of characters: what a position may see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, normal

from fedjax_pfl.models import transformer

pytestmark = pytest.mark.usefixtures('quick_compiler')
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
