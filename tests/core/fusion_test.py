"""What XLA is kept from fusing: the numbers stay."""

import jax
import jax.numpy as jnp
import pytest

from fedjax_pfl.core.target import compiling_for, gradients_alone


@pytest.mark.parametrize('platform', ['cpu', 'gpu'])
def test_derivatives_of_parameters(platform):
  """Backwards, forwards, and twice."""

  def cube(w):
    return (gradients_alone({'w': w})['w'] ** 3).sum()

  w = jnp.array([2.0, 3.0])
  with compiling_for(platform):
    assert jax.grad(cube)(w).tolist() == [12.0, 27.0]
    assert jax.jvp(cube, (w,), (jnp.ones(2),)) == (35.0, 39.0)
    assert jax.hessian(cube)(w).diagonal().tolist() == [12.0, 18.0]
    text = jax.jit(jax.grad(cube)).lower(w).as_text()
  assert text.count('optimization_barrier') == (platform == 'gpu')
