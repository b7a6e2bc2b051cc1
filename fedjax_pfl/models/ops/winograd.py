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

The transforms are Toom and Cook's, an axis after the other:

  y_k = sum_u x_{k+u} K_u,  k < m,  u < r,  m + r = 7
      = (A^T [(G K) * (B^T x)])_k

is an evaluation at five points p_i and at infinity. With F_i = prod_{k != i}
(p_i - p_k), row i of A is (1, p_i, p_i^2, ..), of G the same over F_i, and of
B^T, which does not depend on m, the coefficients of prod_{k != i} (z - p_k).
Exact up to rounding: with 0, +-3/4, +-3/2 the error of float32 is 2 to 3 times
that of the direct sum, with the usual 0, +-1, +-2 4 to 6 times.

What lies side by side in an image has the same constants: a pass is one loop
without branches, zeros in the matrices included.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.target import one_pass
from fedjax_pfl.models.ops import pool
from fedjax_pfl.models.ops.blocks import block_size, over_blocks
from fedjax_pfl.models.ops.passes import add_all, by_hand

LEAST_CHANNELS = 16  # of fewer the passes take longer than the products
LEAST_PIXELS = 64
# Smaller images must be whole tiles, and so many that the 36 matrices of a
# kernel, four times its size, are worth their passes.
LEAST_TILES = 32
SIZE = 6  # of a tile, a side
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)


def is_worth(x: tuple[int, ...], kernel: tuple[int, ...], edge: int) -> bool:
  """Return whether to convolve images of shape x [B, H, W, C] this way."""
  r, _, channels, outputs = kernel
  if kernel[:2] not in ((3, 3), (5, 5)):
    return False
  h, w = (side + 2 * edge - r + 1 for side in x[1:3])
  m = SIZE + 1 - r
  is_filled = h % m == w % m == 0 and x[0] * h * w >= LEAST_TILES * m**2
  is_large = h * w >= LEAST_PIXELS or is_filled
  return is_large and min(channels, outputs) >= LEAST_CHANNELS


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
  m, h, w, framed = _frame(x, r, edge)
  g = jnp.asarray(_kernel_matrix(r), kernel.dtype)
  u = lax.dot(g, kernel.reshape(r * r, -1), precision=precision)
  u = u.reshape(-1, c, o)

  def layer(x):
    v = _to_tiles(framed(x), m)
    products = _batched(v.reshape(len(u), -1, c), u, 2, 1, precision)
    products = products.reshape(*v.shape[:-1], o)
    y = _from_products(products, m)[:, :h, :w]
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
  m, h, w, framed = _frame(x, r, edge)
  rest = (1, 0, -h % m), (2, 0, -w % m)
  high, wide = x.shape[1:3]

  def differentiate(x, dy, won):
    v = _to_tiles(framed(x), m)
    dy = dy if won is None else pool.backward(dy, won, size, (h, w))
    dm = _to_products(_margin(dy, rest), m).reshape(points, -1, o)
    du = _batched(v.reshape(points, -1, c), dm, 1, 1, precision)
    dv = _batched(dm, u, 2, 2, precision).reshape(v.shape)
    dx = _from_tiles(dv, m)
    return du, dx[:, edge : edge + high, edge : edge + wide]

  du, dx = over_blocks(differentiate, _block(x, u, m, h, w), x, dz, won)
  g = jnp.asarray(_kernel_matrix(r), u.dtype)
  dk = lax.dot(g.T, du.reshape(points, -1), precision=precision)
  dk = dk.reshape(r, r, c, o)
  if won is None:
    return dx, dk, None
  return dx, dk, jnp.where(won == pool.OFF, 0, dz).sum((0, 1, 2))


def _frame(x: Array, r: int, edge: int):
  """Return m, the result's height and width, and what completes the tiles."""
  m = SIZE + 1 - r
  h, w = (side + 2 * edge - r + 1 for side in x.shape[1:3])
  edges = [(axis, edge, edge + -n % m) for axis, n in ((1, h), (2, w))]
  return m, h, w, lambda x: _margin(x, edges)


def _block(x: Array, u: Array, m: int, h: int, w: int) -> int:
  """Return the images of a block, by the bytes of its tiles and products."""
  points, c, o = u.shape
  tiles_each = -(-h // m) * -(-w // m)
  each = points * tiles_each * (c + o)
  size = x.dtype.itemsize
  return block_size(len(x), each * size, u.size * size)


def _batched(a, b, i: int, j: int, precision) -> Array:
  """Return the products of a[k] and b[k], over axis i of a and j of b."""
  axes = (((i,), (j,)), ((0,), (0,)))
  return lax.dot_general(a, b, axes, precision=precision)


# ---- Transforms of tiles, an axis after the other


def _others(i: int) -> list[float]:
  return [p for k, p in enumerate(_POINTS) if k != i]


def _powers(count: int) -> np.ndarray:
  rows = [[p**k for k in range(count)] for p in _POINTS]
  return np.array([*rows, [0.0] * (count - 1) + [1.0]])


_BT = np.array(
  [[*np.poly(_others(i))[::-1], 0.0] for i in range(5)]
  + [[*np.poly(_POINTS)[::-1]]]
)


def _kernel_matrix(r: int) -> np.ndarray:
  """Return (G x G)[6 i + j, r u + v], for kernels [r r, ..] in both axes."""
  f = [np.prod([p - q for q in _others(i)]) for i, p in enumerate(_POINTS)]
  g = _powers(r) / np.array([*f, 1.0])[:, None]
  return np.kron(g, g)


def _to_tiles(x: Array, m: int) -> Array:
  """Return B^T d B [6, 6, B, t, s, C] of the tiles d of x.

  x is [B, m t + 6 - m, m s + 6 - m, C]; tiles begin at every m-th pixel.
  """
  return _read(_read(x, m=m, axis=1, new=0), m=m, axis=3, new=1)


def _from_tiles(dv: Array, m: int) -> Array:
  """Return the gradient of `_to_tiles`: tiles overlap by 6 - m pixels."""
  for axis, tiles in ((1, 4), (0, 2)):
    overlap = -(-SIZE // m) - 1
    dv = _margin(dv, [(tiles, overlap, overlap)])
    dv = _add_up(dv, m=m, axis=axis, tiles=tiles, overlap=overlap)
  return dv


def _from_products(products: Array, m: int) -> Array:
  """Return A^T M A [B, m t, m s, O] of M [6, 6, B, t, s, O]."""
  *_, b, t, s, o = products.shape
  columns = _contract(products, m=m, is_gradient=False, axis=1, new=4)
  pixels = _contract(columns, m=m, is_gradient=False, axis=0, new=2)
  return pixels.reshape(b, m * t, m * s, o)


def _to_products(dy: Array, m: int) -> Array:
  """Return the gradient of `_from_products`: A dy A^T."""
  b, h, w, o = dy.shape
  pixels = dy.reshape(b, h // m, m, w // m, m, o)
  columns = _contract(pixels, m=m, is_gradient=True, axis=4, new=0)
  return _contract(columns, m=m, is_gradient=True, axis=3, new=0)


def _mix(matrix: np.ndarray, terms: Sequence[Array], axis: int) -> Array:
  """Return sum_u matrix[:, u] terms[u], with a new axis for the rows."""
  shape = [1] * (terms[0].ndim + 1)
  shape[axis] = len(matrix)
  return add_all(
    lax.expand_dims(term, (axis,))
    * jnp.asarray(column.reshape(shape), term.dtype)
    for column, term in zip(matrix.T, terms, strict=True)
    if column.any()
  )


@one_pass
def _read(x, *, m, axis, new):
  end = x.shape[axis] - SIZE + 1
  pixels = [lax.slice_in_dim(x, u, u + end, m, axis) for u in range(SIZE)]
  return _mix(_BT, pixels, new)


@one_pass
def _contract(x, *, m, is_gradient, axis, new):
  matrix = _powers(m) if is_gradient else _powers(m).T
  return _mix(matrix, _unstacked(x, axis), new)


def _unstacked(x: Array, axis: int) -> list[Array]:
  return [lax.index_in_dim(x, i, axis, False) for i in range(x.shape[axis])]


def _margin(x: Array, edges: Sequence[tuple[int, int, int]]) -> Array:
  """Return x with zeros; an edge is (axis, before, after).

  A copy into an array of zeros: padding inside of a sum would be a branch for
  every number.
  """
  edges = tuple(edges)
  is_needed = any(before or after for _, before, after in edges)
  return _extend(x, edges=edges) if is_needed else x


@one_pass
def _extend(x, *, edges):
  shape, start = list(x.shape), [0] * x.ndim
  for axis, before, after in edges:
    shape[axis] += before + after
    start[axis] = before
  return lax.dynamic_update_slice(lax.full(shape, 0, x.dtype), x, start)


@one_pass
def _add_up(x, *, m, axis, tiles, overlap):
  """Return the sum over points `axis` and over the tiles that meet a pixel.

  `tiles` has a margin of as many tiles as overlap. Pixel m s + k of tile s is
  pixel k + m e of tile s - e.
  """
  tile_axis = tiles - (axis < tiles)
  count = x.shape[tiles] - overlap

  def part(e):
    matrix = np.zeros((m, SIZE))
    pixels = _BT[:, m * e : m * (e + 1)].T
    matrix[: len(pixels)] = pixels
    start = overlap - e
    met = lax.slice_in_dim(x, start, start + count, 1, tiles)
    return _mix(matrix, _unstacked(met, axis), tile_axis + 1)

  total = add_all(part(e) for e in range(overlap + 1))
  shape = list(total.shape)
  shape[tile_axis : tile_axis + 2] = [count * m]
  return lax.reshape(total, shape)
