"""Pooling without XLA's windows.

The gradient of lax.reduce_window is a scatter: slow on a CPU, and more traffic
than a comparison on an accelerator. Here a max-pooling of images [B, H, W, C]
keeps which pixel of a window won, one byte a window:

  z = max_k x_k,   won = the first k with x_k = z,   dx_k = dz where won = k

So the gradient reads neither x nor z, which XLA may compute twice and round
differently. Lines that fill no window are left out; their gradient is zero.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from fedjax_pfl.models.ops.passes import by_hand

LARGEST = 11  # pixels a side of a window: 121 winners fit into a byte
OFF = -1  # the winner of a window that a ReLU turns off


@by_hand(1)
def max_pool(x: Array, size: int):
  """Return the maximum of every size x size pixels, side by side."""
  z, won = forward(x, size)
  # An array of no images: its shape for the backward pass, without memory.
  return z, (won, x[:0])


@max_pool.gradient
def _max_pool(size, saved, dz):
  won, like = saved
  return (backward(dz, won, size, like.shape[1:3]),)


def forward(x: Array, size: int) -> tuple[Array, Array]:
  """Return (maximum, which pixel won: int8), both [B, h, w, C]."""
  h, w = (side // size * size for side in x.shape[1:3])
  return largest([
    x[:, p:h:size, q:w:size] for p in range(size) for q in range(size)
  ])  # fmt: skip


def largest(pixels: Sequence[Array]) -> tuple[Array, Array]:
  """Return (maximum, which one won: the first of equals, int8)."""
  top, won = pixels[0], lax.full(pixels[0].shape, 0, jnp.int8)
  for k, pixel in enumerate(pixels[1:], 1):
    won = lax.select(pixel > top, lax.full_like(won, k), won)
    top = lax.max(top, pixel)
  return top, won


def relu(top: Array, bias: Array, won: Array) -> tuple[Array, Array]:
  """Return relu(top + bias), and who won, where the ReLU is on."""
  z = top + bias
  zero = lax.full_like(z, 0)
  return lax.max(z, zero), lax.select(z > zero, won, lax.full_like(won, OFF))


def backward(dz: Array, won: Array, size: int, sides: tuple[int, int]) -> Array:
  """Return dx [B, H, W, C] of images of these sides (H, W)."""
  b, h, w, c = dz.shape
  k = jnp.arange(size * size, dtype=jnp.int8).reshape(size, 1, size, 1)
  wide = (slice(None), slice(None), None, slice(None), None, slice(None))
  dx = jnp.where(won[wide] == k, dz[wide], jnp.zeros((), dz.dtype))
  dx = dx.reshape(b, h * size, w * size, c)
  rest = sides[0] - size * h, sides[1] - size * w
  return jnp.pad(dx, ((0, 0), (0, rest[0]), (0, rest[1]), (0, 0)))


def larger(a: Array, b: Array) -> Array:
  """Return max(a, b); of equals a, which gets the whole gradient.

  jnp.maximum gives half of it to each.
  """
  return lax.select((a >= b) | (a != a), a, b)  # NaN is the larger one


def largest_of_windows(
  x: Array, window: Sequence[int], strides: Sequence[int]
) -> Array:
  """Return the maximum of every window; windows may overlap.

  Axis after axis: a + b terms for a window of a x b pixels, not a b. The last
  axis first: the first of equals in it is then in the first line of equals.
  """
  for axis in reversed(range(x.ndim)):
    size, stride = window[axis], strides[axis]
    if size == stride == 1:
      continue
    last = x.shape[axis] - size + 1
    offsets = [
      lax.slice_in_dim(x, i, i + last, stride, axis) for i in range(size)
    ]
    x = functools.reduce(larger, offsets)
  return x
