"""A function beside the same one with the layers of the project."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.models.replace_layers import replace_layers


def derivatives(fn, number):
  """Return args -> a sum of fn, its gradient by all arguments, and fn."""

  def run(*args):
    y = fn(*args)
    return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

  order = tuple(range(number))
  return jax.jit(jax.value_and_grad(run, order, has_aux=True))


definition = functools.cache(derivatives)  # the same fn is compiled once


def check(fn, *args, conv_impl='gemm'):
  """Assert that values and gradients are those of fn; return the program."""
  replaced = derivatives(replace_layers(fn, conv_impl), len(args))
  want, got = definition(fn, len(args))(*args), replaced(*args)
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
  return str(jax.make_jaxpr(replaced)(*args))


def convolutions(program):
  return len(re.findall(r'= conv_general_dilated\[', program))


def layer(kernel, x, padding='SAME'):
  return lax.conv_general_dilated(
    x, kernel, (1, 1), padding, dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )
