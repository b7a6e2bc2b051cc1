"""Passes over a few channels' images as rows [c, H, W B], for a CPU.

  activate             relu(scale x + bias) w, x of BatchNorm
  norm_gradient        norm'(y, g) of batch_norm.py
  convolve             sum_t u_t k_t of 3x3 taps t
  tap_sums             sum u_t dv of each tap

An innermost loop is as long as a row. What a convolution reads has zeros
around, [c, H + 2, (W + 2) B], and is written into an array that has them
(`inside`): XLA takes eight times as long to pad as for a ReLU. Sums are
added up over some rows where they are read, the rest as a product.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import patches_chwb
from fedjax_pfl.models.ops.batch_norm import EPSILON, wide
from fedjax_pfl.models.ops.passes import add_all, add_some, one_pass, taps_of

Affine = tuple[Array, Array]  # [C] scale and bias, what BatchNorm learns
Moments = tuple[Array, Array]  # [C] mean and 1 / sqrt(var + eps) of a batch


class Pixels(NamedTuple):
  """The pixels of images, of which a mask [B] counts some."""

  number: Array  # [] of those that count; at least 1
  w: Array  # [1, 1, W B] 1 where they count


def rows_of(x: Array) -> Array:
  """Return images [c, H, W, B] as rows [c, H, W B]."""
  return x.reshape(*x.shape[:2], -1)


def pixels_of(y: Array, mask: Array, stride: int) -> tuple[Pixels, Pixels]:
  """Return the pixels of y and of its convolution."""
  mask = mask.astype(jax.eval_shape(wide, y).dtype)

  def pixels(h, w):
    number = jnp.maximum(mask.sum() * h * w, 1)
    return Pixels(number, jnp.tile(mask, w).reshape(1, 1, -1))

  _, h, w, _ = y.shape
  return pixels(h, w), pixels(-(-h // stride), -(-w // stride))


# ---- BatchNorm and ReLU of rows [c, H, n]


def moments_of(y: Array, of: Pixels) -> Moments:
  mean = _sums(_terms_of_mean, 1, y, of.w)[:, 0] / of.number
  squares = _sums(_terms_of_variance, 1, y, mean, of.w)[:, 0]
  return mean, lax.rsqrt(squares / of.number + EPSILON)


def line(affine: Affine, of: Moments) -> tuple[Array, Array, Array]:
  """Return m, a, c of scale x + bias = a (y - m) + c."""
  (mean, inverse), (scale, bias) = of, map(wide, affine)
  return mean, scale * inverse, bias


def affine_gradient(g, y, affine: Affine, of: Moments, pixels: Pixels):
  """Return the gradient of scale and bias, and what `norm_gradient` takes."""
  (mean, inverse), (scale, _) = of, affine
  dbias, dscale = _sums(_terms_of_gradient, 2, g, y, mean).T
  dscale = dscale * inverse
  a, n = wide(scale) * inverse, pixels.number
  factors = mean, a, dbias / n, inverse * dscale / n
  return (dscale.astype(scale.dtype), dbias.astype(scale.dtype)), factors


def activate(y, m, a, c, w):
  """Return relu(a (y - m) + c) of the pixels that count."""
  z = (y - _column(m)) * _column(a) + _column(c)
  return lax.max(z, lax.full_like(z, 0)) * w


def norm_gradient(g, y, m, a, b, c, w):
  """Return the gradient of y from that of what BatchNorm made of it."""
  centred = y - _column(m)
  return _column(a) * (g - (_column(b) + centred * _column(c)) * w)


@one_pass
def gate(v, m, a, c, dz, w):
  """Return dz where `activate` is above 0."""
  z = (v - _column(m)) * _column(a) + _column(c)
  return lax.select(z > 0, dz * w, lax.full_like(dz, 0))


@one_pass
def inside(margin, *arrays, of):
  """Return the rows of(*arrays) within zeros; without a margin as they are."""
  rows = of(*arrays)
  if margin is None:
    return rows
  b = (margin.shape[2] - rows.shape[2]) // 2
  return lax.dynamic_update_slice(margin, rows, (0, 1, b))


def _column(a: Array) -> Array:
  return a.reshape(-1, 1, 1)


# ---- Sums over all pixels of a channel


def _sums(terms, n: int, *arrays, **how) -> Array:
  """Return the sums [c, n] of n terms, rows [c, H, ..]."""
  rows = _partial_sums(*arrays, terms=terms, **how)
  rows = rows.reshape(len(rows) * n, -1)
  ones = jnp.ones(rows.shape[1], rows.dtype)
  total = lax.dot(rows, ones, precision=lax.Precision.HIGHEST)
  return total.reshape(-1, n)


@one_pass
def _partial_sums(*arrays, terms, **how):
  return lax.concatenate([add_some(x, 1) for x in terms(*arrays, **how)], 1)


def _terms_of_mean(y, w):
  return [y * w]


def _terms_of_variance(y, mean, w):
  centred = (y - _column(mean)) * w
  return [centred * centred]


def _terms_of_gradient(g, y, mean):
  return [g, g * (y - _column(mean))]


# ---- The convolution of what has a margin, and kernels [c, 9]. With another
# stride than 1 it is that of images; b numbers are a pixel.


def convolve(u: Array, kernel: Array, stride: int, b: int) -> Array:
  """Return the rows v of the rows u."""
  u = u if stride == 1 else _images(u, b)
  return rows_of(_convolve(u, kernel, stride=stride, b=b))


@one_pass
def _convolve(u, kernel, *, stride, b):
  return _weighted(_taps(u, stride, b), kernel)


def image_gradient(dv, u, kernel, stride: int, shape, b: int) -> Array:
  """Return the gradient of u where u > 0, from dv; of stride 1 in a margin."""
  if stride == 1:
    return _gradient_where_positive(dv, u, kernel, b=b)
  c, h, w = shape
  columns = kernel.T.reshape(9, -1, 1, 1, 1)
  image = h, w // b, b
  du = patches_chwb.fold(_images(dv, b), columns, (3, 3), stride, 1, image)
  return _where_positive(du.reshape(c, h, w), u, b=b)


@one_pass
def _gradient_where_positive(dv, u, kernel, *, b):
  du = _weighted(_taps(dv, 1, b)[::-1], kernel)
  return lax.select(_inner(u, b) > 0, du, lax.full_like(du, 0))


@one_pass
def _where_positive(du, u, *, b):
  return lax.select(_inner(u, b) > 0, du, lax.full_like(du, 0))


def tap_sums(u: Array, dv: Array, stride: int, b: int) -> Array:
  """Return sum u_t dv of the 9 taps [c, 9]; of stride 1 dv is in a margin."""
  arrays = (u, dv) if stride == 1 else (_images(u, b), _images(dv, b))
  return _sums(_terms_of_taps, 9, *arrays, stride=stride, b=b)


def _terms_of_taps(u, dv, *, stride, b):
  dv = _inner(dv, b) if stride == 1 else dv
  return [tap * dv for tap in _taps(u, stride, b)]


def _inner(x: Array, b: int) -> Array:
  """Return the rows within a margin of one pixel."""
  c, h, w = x.shape
  return lax.slice(x, (0, 1, b), (c, h - 1, w - b))


def _taps(x: Array, stride: int, b: int) -> list[Array]:
  """Return rows, or images, with a margin as the 9 taps see them."""
  if stride > 1:
    return taps_of(x, (3, 3), stride)
  c, h, w = x.shape
  return [
    lax.slice(x, (0, u, v * b), (c, u + h - 2, w - (2 - v) * b))
    for u in range(3) for v in range(3)
  ]  # fmt: skip


def _weighted(taps: list[Array], kernel: Array) -> Array:
  ones = (1,) * (taps[0].ndim - 1)

  def column(t):
    return lax.slice_in_dim(kernel, t, t + 1, axis=1).reshape(-1, *ones)

  return add_all(tap * column(t) for t, tap in enumerate(taps))


def _images(rows: Array, b: int) -> Array:
  return rows.reshape(*rows.shape[:2], -1, b)
