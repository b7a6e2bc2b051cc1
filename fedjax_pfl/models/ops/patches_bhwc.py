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
from fedjax_pfl.models.ops.passes import pad


def conv(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike,
) -> Array:
  """Convolve x [B, H, W, C] with kernel [k, l, C, O]."""
  k, m, _, o = kernel.shape
  high, broad = (
    side + sum(edges) - size + 1
    for side, edges, size in zip(x.shape[1:3], padding, (k, m), strict=True)
  )
  flat = kernel.reshape(-1, o)

  def convolve(x, flat):
    x = wide(x)  # so that the gradient adds up its taps in at least float32
    x = pad(x, *padding) if any(map(any, padding)) else x
    taps = [
      x[:, u : u + high : stride, v : v + broad : stride]
      for u in range(k) for v in range(m)
    ]  # fmt: skip
    patches = jnp.concatenate(taps, -1).astype(flat.dtype)
    rows = patches.reshape(-1, len(flat))
    y = lax.dot(rows, flat, precision=precision)
    return y.reshape(*patches.shape[:3], o)

  if k == m == 1:
    return convolve(x, flat)
  pixels = -(-high // stride) * -(-broad // stride)
  each = len(flat) * pixels * x.dtype.itemsize
  return in_blocks(convolve, block_size(len(x), each), x, flat)
