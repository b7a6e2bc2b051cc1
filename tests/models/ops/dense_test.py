"""Dense layers with a large kernel agree with lax, and are read few times."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.models.ops import dense
from fedjax_pfl.models.ops.replace_layers import replace_layers


def two_layers(params, x):
  first, second = params
  return jnp.tanh(jnp.tanh(x @ first) @ second)


ours = replace_layers(two_layers, 'gemm')


def make(rows, dtype, width=12):
  rng = np.random.default_rng(0)
  shapes = (width, width), (width, 5), (rows, width)
  *params, x = (jnp.asarray(rng.normal(size=s), dtype) for s in shapes)
  return params, x


@pytest.mark.parametrize('rows', [0, dense.MOST_ROWS, dense.MOST_ROWS + 1])
def test_gradients_agree_twice(rows, monkeypatch, float64):
  monkeypatch.setattr(dense, 'LEAST_BYTES', 1)

  @jax.jit
  def derivatives(params, x):
    def run(f):
      slope = jax.grad(lambda *a: (f(*a) ** 3).sum(), (0, 1))
      leaves = jax.tree.leaves
      total = jax.grad(lambda *a: sum(g.sum() for g in leaves(slope(*a))), 1)
      return slope(params, x), total(params, x)

    return run(ours), run(two_layers)

  got, want = derivatives(*make(rows, jnp.float64))
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
  'rows, dtype, width, is_product',
  [
    (3, jnp.float32, 1200, False),  # of few rows: a sum of them
    (3, jnp.float32, 12, True),  # a small kernel stays with XLA
    (3, jnp.bfloat16, 1200, True),  # a sum would lose digits
    (dense.MOST_ROWS + 1, jnp.float32, 1200, True),
  ],
)
def test_whether_a_kernels_gradient_is_a_product(
  rows, dtype, width, is_product
):
  """And x, which is not differentiated, has no gradient."""
  params, x = make(rows, dtype, width)
  slope = jax.make_jaxpr(jax.grad(lambda params: ours(params, x).sum()))
  found = re.findall(r'\[(\d+),(\d+)\] = dot_general', str(slope(params)))
  assert ((str(width), str(width)) in found) == is_product
  assert found.count((str(rows), str(width))) == 2
