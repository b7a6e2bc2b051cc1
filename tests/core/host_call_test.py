"""Calls of the host: whole arrays, and programs of several devices that end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_devices

from fedjax_pfl.core.machine import BLOCK, call_on_host


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
