"""A number of several settings: it computes with one, and decides for all."""

import copy
import math
from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.traced_number import Differ, TracedNumber

VALUES = (0.1, 0.3)


def computed(function):
  """Return what a compiled program gives for each of the two settings."""

  @jax.jit
  def program(array):
    return jnp.asarray(function(TracedNumber(VALUES, array)))

  results = [program(jnp.float32(value)) for value in VALUES]
  assert program._cache_size() == 1
  return results


@pytest.mark.parametrize(
  'function',
  [
    lambda x: x * jnp.arange(3.0) + x,
    lambda x: 1 - 2 * x,
    lambda x: -((x / 4) ** 2),
    lambda x: 2 ** (x + 1) - x / (1 - x),
    lambda x: np.ones(2, np.float32) * x,
    lambda x: jnp.ones(2) < x * 10,
    lambda x: jnp.stack([x, x]),
    lambda x: x * x + (x - x),
  ],
)
def test_it_computes_as_the_number_of_each_setting(function):
  for value, got in zip(VALUES, computed(function), strict=True):
    want = function(value)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.asarray(got).dtype == jnp.asarray(want).dtype


def test_it_has_the_precision_of_its_partner():
  """As a number of Python: bfloat16 stays bfloat16."""
  got, _ = computed(lambda x: x * jnp.ones(2, jnp.bfloat16))
  assert got.dtype == jnp.bfloat16


def test_a_decision_is_that_of_all_settings():
  number = TracedNumber(VALUES)
  assert number > 0 and number < 1 and not number < 0 and number
  assert number != 1 and number != 'a' and number is not None
  assert 0 <= number * 2 < math.inf and 1 - number > 0.5
  assert isinstance(number, Real) and not callable(number)
  assert copy.deepcopy(number) is number and repr(number) == '0.1 or 0.3'
  assert int(number) == 0
  with pytest.raises(Differ) as found:
    assert number > 0.2
  assert found.value.answers == (False, True)
  with pytest.raises(Differ):
    assert TracedNumber((0.0, 0.1))


@pytest.mark.parametrize(
  'function', [float, hash, math.isfinite, jnp.asarray, np.float32]
)
def test_its_value_is_given_only_if_all_settings_have_it(function):
  with pytest.raises(Differ) as found:
    function(TracedNumber(VALUES))
  assert found.value.answers == VALUES
  assert function(TracedNumber((0.5, 0.5))) == function(0.5)


@pytest.mark.parametrize(
  'function',
  [lambda x: np.sqrt(x), lambda x: jnp.maximum(x, 0.2), lambda x: round(x)],
)
def test_what_takes_it_for_a_float_fails(function):
  """Rather than to compute with the number of one setting for all."""
  with pytest.raises((TypeError, ValueError, Differ)):
    computed(function)
