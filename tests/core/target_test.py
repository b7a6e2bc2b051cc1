"""A program is traced for its target, not for this machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_devices
from pages import ROOT

from fedjax_pfl.core.machine import BLOCK, call_on_host
from fedjax_pfl.core.target import compiling_for, gradients_alone, target

PACKAGE = ROOT / 'fedjax_pfl'
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


# ---- calls of the host


@pytest.mark.parametrize('shape', [(0, 2), (BLOCK, 3)])
def test_host_gets_the_whole_array(shape):
  """Also one without rows, and one of many blocks."""
  x = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
  got = jax.jit(lambda x: call_on_host(lambda x: x * 2, x, x))(x)
  np.testing.assert_array_equal(got, 2 * x)


def test_a_divided_cpu_returns_from_a_call_with_a_large_argument():
  """As one argument, a million numbers made two devices wait forever."""
  sizes = [1_000, *[1_000_000] * 5]  # in 62 blocks; 5 times for a race
  name = 'on_devices.call_the_host'
  found = simulated_devices.call(2, name, sizes, timeout=120)
  assert found == [2 * size for size in sizes]
