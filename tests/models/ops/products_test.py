"""Products, and which of their operands are copied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_pfl.models.ops import products

HIGHEST = lax.Precision.HIGHEST


@pytest.mark.usefixtures('float64')
@pytest.mark.parametrize('columns, is_copied', [(40, True), (2048, False)])
def test_a_kernel_is_copied_for_few_columns(columns, is_copied):
  draw = np.random.default_rng(0).normal
  k, x = jnp.asarray(draw(size=(3, 256))), jnp.asarray(draw(size=(3, columns)))

  def f(k, x):
    return products.kernel_times(k, x, HIGHEST)

  program = jax.jit(f).lower(k, x).compile()
  np.testing.assert_allclose(program(k, x), np.asarray(k).T @ x, atol=1e-13)
  (product,) = (
    line for line in program.as_text().splitlines() if ' dot(' in line
  )
  contracted = 'lhs_contracting_dims={1}' if is_copied else '={0}, rhs'
  assert contracted in product
