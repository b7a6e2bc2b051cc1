"""A program is traced for its target, not for this machine."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from fedjax_pfl.core.target import compiling_for, gradients_alone, target

PACKAGE = Path(__file__).parents[2] / 'fedjax_pfl'
# What is decided while the program runs, about this machine.
AT_RUN_TIME = {'loop.py', 'target.py'}


def test_this_machine_unless_told_otherwise():
  with pytest.raises(RuntimeError), compiling_for('tpu'):
    with compiling_for('gpu'):
      assert target() == 'gpu'
    assert target() == 'tpu'
    raise RuntimeError
  assert target() == jax.default_backend()


def test_nothing_that_is_traced_asks_for_the_backend():
  asking = {
    file.name
    for file in PACKAGE.rglob('*.py')
    if 'default_backend' in file.read_text()
  }
  assert asking == AT_RUN_TIME


@pytest.mark.parametrize('platform', ['cpu', 'gpu'])
def test_what_is_kept_from_fusion_has_its_derivatives(platform):
  """Backwards and twice; on a GPU a barrier is behind the gradient."""

  def cube(w):
    return (gradients_alone({'w': w})['w'] ** 3).sum()

  w = jnp.array([2.0, 3.0])
  with compiling_for(platform):
    assert jax.grad(cube)(w).tolist() == [12.0, 27.0]
    assert jax.hessian(cube)(w).diagonal().tolist() == [12.0, 18.0]
    text = jax.jit(jax.grad(cube)).lower(w).as_text()
  assert text.count('optimization_barrier') == (platform == 'gpu')
