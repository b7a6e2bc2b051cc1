"""A pass over memory of its own, for a result that XLA would fuse on a CPU.

XLA fuses an elementwise result into each of its readers and computes it again
for each one: the 16 readers of a gradient in `winograd.py` took 50 ms, writing
it once takes 1 ms. On a CPU `lax.optimization_barrier` is removed before
fusion; a call that is not inlined is kept.
"""

import functools
from collections.abc import Callable

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from fedjax_pfl.core.target import target


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
