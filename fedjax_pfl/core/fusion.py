"""What XLA is kept from fusing.

`one_pass`, on a CPU: XLA fuses an elementwise result into each of its readers
and computes it again for each one: the 16 readers of a gradient in
`winograd.py` took 50 ms, writing it once takes 1 ms. There
`lax.optimization_barrier` is removed before fusion; a call that is not inlined
is kept.

`gradients_alone`, on a GPU: XLA lets the product that computes the gradient of
a kernel add it to the momentum (beta = 1 of cuBLAS), and multiplies the
momentum before, in a pass of its own: three more accesses to each kernel
(MobileNet on an H100, 100 clients: 24.1 instead of 23.4 MB an image).
"""

import functools
from collections.abc import Callable

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import PyTree


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


def gradients_alone(params: PyTree) -> PyTree:
  """Return params, whose gradients XLA does not fuse with their update."""
  return _alone(params) if target() == 'gpu' else params


@jax.custom_jvp
def _alone(params):
  return params


@_alone.defjvp
def _alone_jvp(primals, tangents):  # transposed: a barrier for the gradients
  return *primals, *map(lax.optimization_barrier, tangents)
