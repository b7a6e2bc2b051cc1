"""Control fusion on a CPU: compute an intermediate result in one pass.

XLA fuses an elementwise result into each of its readers and computes it again
for each one: the 16 readers of a gradient in `winograd.py` took 50 ms, writing
it once takes 1 ms. On a CPU `lax.optimization_barrier` is removed before
fusion; a call that is not inlined is kept.
"""

import functools
from collections.abc import Callable, Sequence

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array


def one_pass(f: Callable) -> Callable:
  """Return f as a call that is not fused with the readers of its results.

  Inside f call lax instead of jnp: functions that jnp jits would be separate
  passes.
  """
  jitted = jax.jit(f)

  @functools.wraps(f)
  def call(*args):
    if target() != 'cpu':
      return f(*args)
    with set_xla_metadata(inlineable='false'):
      return jitted(*args)

  return call


def combine(terms: Sequence[tuple[float, Array]]) -> Array:
  """Return sum_i c_i x_i; without terms of c_i = 0."""
  total = None
  for c, x in terms:
    if c == 0:
      continue
    x = x if abs(c) == 1 else x * abs(c)
    if total is None:
      total = x if c > 0 else -x
    else:
      total = total + x if c > 0 else total - x
  return total


def pad(x: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
  """Pad axes 1 and 2 of [C, H, W, B] with zeros; a negative number cuts."""
  edges = [(0, 0, 0), (*rows, 0), (*columns, 0), (0, 0, 0)]
  return lax.pad(x, lax.full((), 0, x.dtype), edges)
