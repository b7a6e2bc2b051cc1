"""Convolutions by patches of images [B, H, W, C]: y = P K.

P [pixels, k l C] are the patches of a block of images, which stay in cache and
are taken again for the gradient. A kernel of one pixel takes no patches.
"""

import jax.numpy as jnp
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.blocks import block_size, in_blocks
from fedjax_pfl.models.ops.fusion import pad
from fedjax_pfl.models.ops.products import rows_times

Padding = tuple[tuple[int, int], tuple[int, int]]


def conv(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike,
) -> Array:
  """Convolve x [B, H, W, C] with kernel [k, l, C, O]."""
  x = pad(x, *padding) if any(map(any, padding)) else x
  k, m, _, o = kernel.shape
  high, broad = x.shape[1] - k + 1, x.shape[2] - m + 1
  flat = kernel.reshape(-1, o)

  def convolve(x, flat):
    taps = [
      x[:, u : u + high : stride, v : v + broad : stride]
      for u in range(k) for v in range(m)
    ]  # fmt: skip
    patches = jnp.concatenate(taps, -1)
    y = rows_times(patches.reshape(-1, len(flat)), flat, precision)
    return y.reshape(*patches.shape[:3], o)

  if k == m == 1:
    return convolve(x, flat)
  pixels = -(-high // stride) * -(-broad // stride)
  each = len(flat) * pixels * x.dtype.itemsize
  return in_blocks(convolve, block_size(len(x), each), x, flat)
