"""Dense layers with a large kernel, which is read and written as few times.

  y = x K,  dx = dy K^T,  dK = sum_b x_b dy_b^T

A step of SGD on a kernel that does not fit in cache takes as long as its memory
traffic. Of few rows, dK is a sum of B terms that XLA computes inside of the
optimiser's pass; a product is written and read again. And dK waits for dx: XLA
writes the new kernel over the old one only if nothing may read that later.
"""

import jax
from jax import Array, lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.target import one_pass
from fedjax_pfl.models.ops.passes import times_transposed, transposed_times

MOST_ROWS = 16  # of more rows the product is faster
LEAST_BYTES = 2**20  # of a kernel: a smaller one stays in cache


def is_worth(x: Array, kernel: Array) -> bool:
  """Return whether the kernel is large enough for its traffic to matter.

  Not in half precision: a product adds up in float32, the sum would not.
  """
  size = kernel.dtype.itemsize
  return len(x) > 0 and size >= 4 and kernel.size * size >= LEAST_BYTES


def dense(x: Array, kernel: Array, precision: PrecisionLike) -> Array:
  """Return x [B, I] times kernel [I, O]."""

  @jax.custom_vjp
  def product(x, kernel):
    return lax.dot(x, kernel, precision=precision)

  def forward(x, kernel):
    needs_dx = () if x.perturbed else None  # a flag: no leaf of a pytree
    saved = x.value, kernel.value, needs_dx
    return product(x.value, kernel.value), saved

  def backward(saved, dy):
    x, kernel, needs_dx = saved
    if isinstance(dy, jax.custom_derivatives.SymbolicZero):
      return None, None
    dx = None
    if needs_dx is not None:
      dx = times_transposed(dy, kernel, precision)
      dy = _after(dy, dx)
    if len(x) > MOST_ROWS:
      return dx, transposed_times(x, dy, precision)
    terms = [row[:, None] * g for row, g in zip(x, dy, strict=True)]
    return dx, sum(terms[1:], terms[0])

  product.defvjp(forward, backward, symbolic_zeros=True)
  return product(x, kernel)


@one_pass
def _after(dy, dx):
  """Return dy, once dx is computed: XLA does not see that it adds nothing."""
  first = lax.index_in_dim(dx.reshape(-1), 0, keepdims=False)
  return dy + lax.min(lax.abs(first), lax.full((), 0, dy.dtype))
