"""Convolutions by patches of images [B, H, W, C]: y = P K.

P [pixels, k l C] are the patches of a block of images, padded, which stay in
cache and are taken again for the gradient. A kernel of one pixel takes no
patches.
"""

import jax.numpy as jnp
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.batch_norm import wide
from fedjax_pfl.models.ops.blocks import block_size, in_blocks
from fedjax_pfl.models.ops.deferred import Padding
from fedjax_pfl.models.ops.passes import pad, taps_of


def conv(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike,
) -> Array:
  """Convolve x [B, H, W, C] with kernel [k, l, C, O]."""
  *size, _, o = kernel.shape
  flat = kernel.reshape(-1, o)

  def convolve(x, flat):
    x = wide(x)  # so that the gradient adds up its taps in at least float32
    x = pad(x, *padding) if any(map(any, padding)) else x
    patches = jnp.concatenate(taps_of(x, size, stride), -1).astype(flat.dtype)
    y = lax.dot(patches.reshape(-1, len(flat)), flat, precision=precision)
    return y.reshape(*patches.shape[:3], o)

  if size == [1, 1]:
    return convolve(x, flat)
  pixels = 1
  for side, edges, k in zip(x.shape[1:3], padding, size, strict=True):
    pixels *= -(-(side + sum(edges) - k + 1) // stride)
  each = len(flat) * pixels * x.dtype.itemsize
  return in_blocks(convolve, block_size(len(x), each), x, flat)
