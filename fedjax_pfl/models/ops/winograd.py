"""3x3 convolution of stride 1 with 4 instead of 9 products (Winograd 2x2, 3x3).

Images are [C, H, W, B]. A tile of 2x2 outputs reads 4x4 inputs d; with the
matrices of Lavin and Gray (2016)

  V = B^T d B,  U = G k G^T,  M_ij = U_ij^T V_ij (over channels),
  y = A^T M A

Exact up to rounding. The tile of outputs is the window of a 2x2 max-pool, so
`phases` returns its four pixels as separate arrays: pooling is then a maximum
of arrays. The gradient is written by hand: automatic differentiation adds
padded, strided slices one by one, which takes nine times as long.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.fusion import combine, one_pass, pad
from fedjax_pfl.models.ops.products import times_transposed

_BT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_G = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_AT = ((1, 1, 1, 0), (0, 1, -1, -1))
_A = tuple(zip(*_AT, strict=True))
_GT = tuple(zip(*_G, strict=True))
# Pixel rows 2t and 2t+1 of the gradient, from rows 0 to 3 of V at tile t, row
# 3 at tile t-1 and row 0 at tile t+1 (tiles overlap by two pixels).
_OVERLAP = ((0, 1, -1, 1, -1, 0), (-1, 1, 1, 0, 0, 1))
_ROWS = ((0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (0, -1))  # (row, shift)


def conv(x: Array, kernel: Array, precision: PrecisionLike) -> Array:
  """Convolve x [C, H, W, B] with kernel [3, 3, C, O] to [O, H, W, B]."""
  _, h, w, b = x.shape
  x = jnp.pad(x, ((0, 0), (0, h % 2), (0, w % 2), (0, 0)))
  tiles = [y.reshape(-1, x.shape[1] // 2, x.shape[2] // 2, b)
           for y in phases(x, kernel, precision)]  # fmt: skip
  return _interleave(tiles)[:, :h, :w]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def phases(x: Array, kernel: Array, precision: PrecisionLike) -> list[Array]:
  """Convolve x [C, 2h, 2w, B]; returns y[:, p::2, q::2] as 4 of [O, h w B]."""
  return _forward(x, kernel, precision)[0]


def _forward(x, kernel, precision):
  v = [t.reshape(len(x), -1) for t in _input(pad(x, (1, 1), (1, 1)))]
  u = _kernel(kernel)
  dot = functools.partial(lax.dot, precision=precision)
  y = _output([dot(a.T, b) for a, b in zip(u, v, strict=True)])
  # An array of no channels: its shape for the backward pass, without memory.
  return y, (u, v, x[:0])


def _backward(precision, saved, dy):
  u, v, x = saved
  dot = functools.partial(lax.dot, precision=precision)
  dm = _output_gradient(dy)
  du = [times_transposed(a, b, precision) for a, b in zip(v, dm, strict=True)]
  dv = [dot(a, b) for a, b in zip(u, dm, strict=True)]
  dv = [t.reshape(-1, x.shape[1] // 2, x.shape[2] // 2, x.shape[3]) for t in dv]
  return _input_gradient(dv), _kernel_gradient(du)


phases.defvjp(_forward, _backward)


def _transform(matrix, source: Callable[[int, int], Array]) -> list[Array]:
  """Return [sum_uv m_iu m_jv source(u, v) for i, j] without the zero terms."""
  size = range(len(matrix[0]))
  return [
    combine([(row[u] * column[v], source(u, v))
             for u in size for v in size if row[u] * column[v]])
    for row in matrix for column in matrix
  ]  # fmt: skip


@one_pass
def _input(x: Array) -> list[Array]:
  h, w = x.shape[1:3]  # two pixels larger than the image

  def source(u, v):
    return x[:, u : u + h - 3 : 2, v : v + w - 3 : 2]

  # Flattening in here would cost a division per number.
  return _transform(_BT, source)


@one_pass
def _kernel(kernel: Array) -> list[Array]:
  return _transform(_G, lambda u, v: kernel[u, v])


@one_pass
def _output(m: list[Array]) -> list[Array]:
  return _transform(_AT, lambda i, j: m[4 * i + j])


@one_pass
def _output_gradient(dy: list[Array]) -> list[Array]:
  return _transform(_A, lambda p, q: dy[2 * p + q])


@one_pass
def _kernel_gradient(du: list[Array]) -> Array:
  dk = _transform(_GT, lambda i, j: du[4 * i + j])
  return lax.reshape(jnp.stack(dk), (3, 3, *du[0].shape))


@one_pass
def _input_gradient(dv: list[Array]) -> Array:
  def source(u, v):
    (i, down), (j, right) = _ROWS[u], _ROWS[v]
    return pad(dv[4 * i + j], (down, -down), (right, -right))

  return _interleave(_transform(_OVERLAP, source))


def _interleave(tiles: list[Array]) -> Array:
  c, h, w, b = tiles[0].shape
  rows = [jnp.stack(tiles[:2], 3), jnp.stack(tiles[2:], 3)]
  return jnp.stack(rows, 2).reshape(c, 2 * h, 2 * w, b)
