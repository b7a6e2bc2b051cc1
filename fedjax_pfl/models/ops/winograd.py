"""3x3 and 5x5 convolutions with 36 products for a tile of 6x6 pixels.

Winograd's F(4x4, 3x3), and F(2x2, 5x5):

  V = B^T d B,  U = G K G^T,  M_ij = V_ij U_ij (over channels),  y = A^T M A

4x4 pixels of a 3x3 convolution take 36 products, not 144; 2x2 of a 5x5
convolution 36, not 100. Images are [B, H, W, C] and are taken in blocks, whose
tiles stay in cache; they are computed again for the gradient, which is written
by hand:

  dM = A dy A^T,  dU_ij = V_ij^T dM_ij,  dV_ij = dM_ij U_ij^T

A ReLU and a max-pooling that follow are part of a block: of the images only
what was pooled is written, and which pixel won, a byte a window.
"""

import jax.numpy as jnp
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import pool
from fedjax_pfl.models.ops import winograd_transforms as tiles
from fedjax_pfl.models.ops.blocks import block_size, over_blocks
from fedjax_pfl.models.ops.passes import by_hand

LEAST_CHANNELS = 16  # of fewer the passes take longer than the products
LEAST_PIXELS = 64
# Smaller images must be whole tiles, and so many that the 36 matrices of a
# kernel, four times its size, are worth their passes.
LEAST_TILES = 32


def is_worth(x: tuple[int, ...], kernel: tuple[int, ...], edge: int) -> bool:
  """Return whether to convolve images of shape x [B, H, W, C] this way."""
  r, _, channels, outputs = kernel
  if kernel[:2] not in ((3, 3), (5, 5)):
    return False
  h, w = (side + 2 * edge - r + 1 for side in x[1:3])
  m = tiles.SIZE + 1 - r
  is_filled = h % m == w % m == 0 and x[0] * h * w >= LEAST_TILES * m**2
  return min(channels, outputs) >= LEAST_CHANNELS and (
    h * w >= LEAST_PIXELS or is_filled
  )


@by_hand(3, 4, 5)
def conv(
  x: Array,
  kernel: Array,
  bias: Array | None,
  size: int,
  edge: int,
  precision: PrecisionLike,
):
  """Convolve x [B, H, W, C], with zeros on its edge, with [r, r, C, O].

  With a bias return relu(the maximum of size x size pixels of conv + bias).
  """
  r, _, c, o = kernel.shape
  m = tiles.SIZE + 1 - r
  g = jnp.asarray(tiles.kernel_matrix(r), kernel.dtype)
  u = lax.dot(g, kernel.reshape(r * r, -1), precision=precision)
  u = u.reshape(-1, c, o)
  h, w, margin = _frame(x, r, edge)

  def layer(x):
    v = tiles.to_tiles(margin(x), m)
    products = _batched(v.reshape(len(u), -1, c), u, 2, 1, precision)
    products = products.reshape(*v.shape[:-1], o)
    y = tiles.from_products(products, m)[:, :h, :w]
    if bias is None:
      return (), (y, None)
    top, won = pool.forward(y, size)
    return (), pool.relu(top, bias, won)

  z, won = over_blocks(layer, _block(x, u, m, h, w), x)[1]
  # Kernels of no channels: their shape for the backward pass, without memory.
  return z, (x, u, kernel[:, :, :0], won)


@conv.gradient
def _conv(size, edge, precision, saved, dz):
  x, u, like, won = saved
  points, c, o = u.shape
  r = len(like)
  m = tiles.SIZE + 1 - r
  high, wide = x.shape[1:3]
  h, w, margin = _frame(x, r, edge)
  rest = (1, 0, -h % m), (2, 0, -w % m)

  def differentiate(x, dy, won):
    v = tiles.to_tiles(margin(x), m)
    dy = dy if won is None else pool.backward(dy, won, size, (h, w))
    dm = tiles.to_products(tiles.margin(dy, rest), m)
    dm = dm.reshape(points, -1, o)
    du = _batched(v.reshape(points, -1, c), dm, 1, 1, precision)
    dv = _batched(dm, u, 2, 2, precision).reshape(v.shape)
    dx = tiles.from_tiles(dv, m)
    return du, dx[:, edge : edge + high, edge : edge + wide]

  du, dx = over_blocks(differentiate, _block(x, u, m, h, w), x, dz, won)
  g = jnp.asarray(tiles.kernel_matrix(r), u.dtype)
  dk = lax.dot(g.T, du.reshape(points, -1), precision=precision)
  dk = dk.reshape(r, r, c, o)
  if won is None:
    return dx, dk, None
  return dx, dk, jnp.where(won == pool.OFF, 0, dz).sum((0, 1, 2))


def _frame(x: Array, r: int, edge: int):
  """Return the height and width of the result, and what completes the tiles."""
  m = tiles.SIZE + 1 - r
  h, w = (side + 2 * edge - r + 1 for side in x.shape[1:3])
  edges = [(axis, edge, edge + -n % m) for axis, n in ((1, h), (2, w))]
  return h, w, lambda x: tiles.margin(x, edges)


def _block(x: Array, u: Array, m: int, h: int, w: int) -> int:
  """Return the images of a block, by the bytes of its tiles and products."""
  points, c, o = u.shape
  tiles_each = -(-h // m) * -(-w // m)
  number = x.dtype.itemsize
  each = points * tiles_each * (c + o) * number
  return block_size(len(x), each, u.size * number)


def _batched(a, b, i: int, j: int, precision) -> Array:
  """Return the products of a[k] and b[k], over axis i of a and j of b."""
  axes = (((i,), (j,)), ((0,), (0,)))
  return lax.dot_general(a, b, axes, precision=precision)
