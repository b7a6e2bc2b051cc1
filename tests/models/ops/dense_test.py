"""Dense layers with a large kernel agree with lax, twice differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import normal

from fedjax_pfl.models.ops import dense
from fedjax_pfl.models.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')


def two_layers(params, x):
  first, second = params
  return jnp.tanh(jnp.tanh(x @ first) @ second)


@pytest.mark.parametrize('rows', [0, dense.MOST_ROWS, dense.MOST_ROWS + 1])
def test_gradients_agree_twice(rows, monkeypatch):
  monkeypatch.setattr(dense, 'LEAST_BYTES', 1)

  @jax.jit
  def derivatives(params, x):
    def run(f):
      slope = jax.grad(lambda *a: (f(*a) ** 3).sum(), (0, 1))
      leaves = jax.tree.leaves
      total = jax.grad(lambda *a: sum(g.sum() for g in leaves(slope(*a))), 1)
      return slope(params, x), total(params, x)

    return run(replace_layers(two_layers, 'gemm')), run(two_layers)

  *params, x = normal(12, 12), normal(12, 5), normal(rows, 12)
  got, want = derivatives(params, x)
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
