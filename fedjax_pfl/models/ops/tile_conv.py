"""3x3 and 5x5 convolutions with 36 products for a tile of 6x6 pixels.

  V = B^T d B,  U = G K G^T,  M_ij = V_ij U_ij (over channels),  y = A^T M A

4x4 pixels of a 3x3 convolution (Winograd's F(4x4, 3x3)) take 36 products, not
144; 2x2 of a 5x5 convolution 36, not 100. Images are [B, H, W, C] and are taken
in blocks, whose tiles stay in cache; they are computed again for the gradient,
which is written by hand:

  dM = A dy A^T,  dU_ij = V_ij^T dM_ij,  dV_ij = dM_ij U_ij^T
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import tile_transforms as tiles
from fedjax_pfl.models.ops.blocks import block_size, over_blocks

LEAST_CHANNELS = 16  # of fewer the passes take longer than the products
LEAST_PIXELS = 64


def is_worth(x: tuple[int, ...], kernel: tuple[int, ...], edge: int) -> bool:
  """Return whether to convolve images of shape x [B, H, W, C] this way."""
  r, _, channels, outputs = kernel
  h, w = (side + 2 * edge - r + 1 for side in x[1:3])
  return (
    kernel[:2] in ((3, 3), (5, 5))
    and min(channels, outputs) >= LEAST_CHANNELS
    and h * w >= LEAST_PIXELS
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def conv(x: Array, kernel: Array, edge: int, precision: PrecisionLike) -> Array:
  """Convolve x [B, H, W, C], with zeros on its edge, with [r, r, C, O]."""
  return _forward(x, kernel, edge, precision)[0]


def _forward(x, kernel, edge, precision):
  r, _, c, o = kernel.shape
  m = tiles.SIZE + 1 - r
  g = jnp.asarray(tiles.kernel_matrix(r), kernel.dtype)
  u = lax.dot(g, kernel.reshape(r * r, -1), precision=precision)
  u = u.reshape(-1, c, o)
  h, w, margin = _frame(x, r, edge)

  def convolve(x):
    v = tiles.to_tiles(margin(x), m)
    products = _batched(v.reshape(len(u), -1, c), u, 2, 1, precision)
    y = tiles.from_products(products.reshape(*v.shape[:-1], o), m)
    return (), y[:, :h, :w]

  y = over_blocks(convolve, _block(x, u, m, h, w), x)[1]
  # Kernels of no channels: their shape for the backward pass, without memory.
  return y, (x, u, kernel[:, :, :0])


def _backward(edge, precision, saved, dy):
  x, u, like = saved
  r, (_, c, o) = len(like), u.shape
  m = tiles.SIZE + 1 - r
  high, wide = x.shape[1:3]
  h, w, margin = _frame(x, r, edge)
  rest = tiles.margin((1, 0, -h % m), (2, 0, -w % m))

  def differentiate(x, dy):
    v = tiles.to_tiles(margin(x), m)
    dm = tiles.to_products(rest(dy) if h % m or w % m else dy, m)
    dm = dm.reshape(len(u), -1, o)
    du = _batched(v.reshape(len(u), -1, c), dm, 1, 1, precision)
    dv = _batched(dm, u, 2, 2, precision).reshape(v.shape)
    dx = tiles.from_tiles(dv, m)
    return du, dx[:, edge : edge + high, edge : edge + wide]

  du, dx = over_blocks(differentiate, _block(x, u, m, h, w), x, dy)
  g = jnp.asarray(tiles.kernel_matrix(r), u.dtype)
  dk = lax.dot(g.T, du.reshape(len(u), -1), precision=precision)
  return dx, dk.reshape(r, r, c, o)


conv.defvjp(_forward, _backward)


def _frame(x: Array, r: int, edge: int):
  """Return the height and width of the result, and what completes the tiles."""
  m = tiles.SIZE + 1 - r
  h, w = (side + 2 * edge - r + 1 for side in x.shape[1:3])
  if not edge and h % m == w % m == 0:
    return h, w, lambda x: x
  rows, columns = ((axis, edge, edge + -n % m) for axis, n in ((1, h), (2, w)))
  return h, w, tiles.margin(rows, columns)


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
