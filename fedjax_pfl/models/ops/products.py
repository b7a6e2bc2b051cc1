"""Products with a transposed operand, which is copied where that is faster.

Under a client axis XLA copies `b.T` before it multiplies; where the product
names its axes instead, it reads b as it is. With the copies a step on one core
takes longer: the 4convNet 1.12 (batch 50), FedAvgCNN 1.14 and 1.08 (batch 10
and 50), MobileNet 1.04.

The kernel of a convolution is the exception (`kernel_times`): k^T x has the
first axis of both in common, for which XLA for a CPU calls Eigen, which is slow
where x has few columns. GFLOP/s of one core of an AMD EPYC, k [C, O] as it is
and copied: 512x512 with 800 columns 195 and 232, 512x1024 with 200 columns 96
and 214, with 40 columns 30 and 198.
"""

import functools

import jax
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array


def times_transposed(a: Array, b: Array, precision: PrecisionLike) -> Array:
  """Return a b^T."""
  return lax.dot_general(a, b, (((1,), (1,)), ((), ())), precision=precision)


def transposed_times(a: Array, b: Array, precision: PrecisionLike) -> Array:
  """Return a^T b."""
  return lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=precision)


def kernel_times(k: Array, x: Array, precision: PrecisionLike) -> Array:
  """Return k^T x of a kernel k [C, O]."""
  outputs, columns = k.shape[1], x.shape[1]
  k = k.T
  if outputs >= 256 and columns < 8 * outputs:
    k = lax.optimization_barrier(k)  # a copy
  return lax.dot(k, x, precision=precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rows_times(x: Array, k: Array, precision: PrecisionLike) -> Array:
  """Return x k, of many rows.

  The gradient of k is x^T dy or (dy^T x)^T, whichever transposes the narrower
  operand: 1.5 to 2 times as fast where one is four times as wide as the other.
  """
  return lax.dot(x, k, precision=precision)


def _rows_forward(x, k, precision):
  return rows_times(x, k, precision), (x, k)


def _rows_backward(precision, saved, dy):
  x, k = saved
  if x.shape[1] <= dy.shape[1]:
    dk = transposed_times(x, dy, precision)
  else:
    dk = transposed_times(dy, x, precision).T
  return times_transposed(dy, k, precision), dk


rows_times.defvjp(_rows_forward, _rows_backward)
