"""Passes over a few channels' images as rows [c, H, W B], for a CPU.

  activate             relu(scale x + bias) w, x of BatchNorm
  norm_gradient        norm'(y, g) of batch_norm.py
  convolve             sum_t u_t k_t of 3x3 taps t
  tap_sums             sum u_t dv of each tap

An innermost loop is as long as a row. What a convolution reads has zeros
around, [c, H + 2, (W + 2) B], and is written into an array that has them
(`.._inside`): XLA takes eight times as long to pad as for a ReLU. Sums are
added up over some rows where they are read, the rest as a product.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import patches_chwb
from fedjax_pfl.models.ops.batch_norm import EPSILON, wide
from fedjax_pfl.models.ops.passes import add_all, add_some, one_pass


class Affine(NamedTuple):
  """What BatchNorm learns: scale x + bias."""

  scale: Array  # [C]
  bias: Array  # [C]


class Moments(NamedTuple):
  """The statistics of a batch."""

  mean: Array  # [C]
  inverse: Array  # [C] 1 / sqrt(var + eps)


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
  mean = _sum(y, of.w)[:, 0] / of.number
  squares = _sum_of_squares(y, mean, of.w)[:, 0]
  return Moments(mean, lax.rsqrt(squares / of.number + EPSILON))


def line(affine: Affine, of: Moments) -> tuple[Array, Array, Array]:
  """Return m, a, c of scale x + bias = a (y - m) + c."""
  scale, bias = wide(affine.scale), wide(affine.bias)
  return of.mean, scale * of.inverse, bias


def affine_gradient(g, y, affine: Affine, of: Moments, pixels: Pixels):
  """Return the gradient of scale and bias, and what `norm_gradient` takes."""
  dbias, dscale = _gate_sums(g, y, of.mean).T
  dscale = dscale * of.inverse
  a, n = wide(affine.scale) * of.inverse, pixels.number
  factors = of.mean, a, dbias / n, of.inverse * dscale / n
  dtype = affine.scale.dtype
  return Affine(dscale.astype(dtype), dbias.astype(dtype)), factors


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
def activate_inside(margin, y, m, a, c, w):
  """Return `activate` within zeros."""
  return _put_inside(margin, activate(y, m, a, c, w))


@one_pass
def norm_gradient_inside(margin, g, y, *factors):
  """Return `norm_gradient` within zeros."""
  return _put_inside(margin, norm_gradient(g, y, *factors))


def _put_inside(margin: Array, rows: Array) -> Array:
  b = (margin.shape[2] - rows.shape[2]) // 2
  return lax.dynamic_update_slice(margin, rows, (0, 1, b))


def inside(x: Array, b: int) -> Array:
  """Return the rows within a margin of one pixel of b numbers."""
  c, h, w = x.shape
  return lax.slice(x, (0, 1, b), (c, h - 1, w - b))


def _column(a: Array) -> Array:
  return a.reshape(-1, 1, 1)


# ---- Sums over all pixels of a channel


def _summed(n: int) -> Callable[..., Callable[..., Array]]:
  """Decorate f, which returns n rows [c, H, ..]: return their sums [c, n]."""

  def decorate(f):
    @one_pass
    def partial_sums(*arrays):
      return lax.concatenate([add_some(x, 1) for x in f(*arrays)], 1)

    def sums(*arrays):
      rows = partial_sums(*arrays)
      rows = rows.reshape(len(rows) * n, -1)
      ones = jnp.ones(rows.shape[1], rows.dtype)
      total = lax.dot(rows, ones, precision=lax.Precision.HIGHEST)
      return total.reshape(-1, n)

    return sums

  return decorate


@_summed(1)
def _sum(y, w):
  return [y * w]


@_summed(1)
def _sum_of_squares(y, mean, w):
  centred = (y - _column(mean)) * w
  return [centred * centred]


@_summed(2)
def _gate_sums(g, y, mean):
  return [g, g * (y - _column(mean))]


# ---- The convolution of what has a margin, and kernels [c, 9]


@functools.cache
def convolve(stride: int, b: int) -> Callable[[Array, Array], Array]:
  """Return (u, kernel) -> v, rows of both."""
  if stride == 1:
    return one_pass(lambda u, k: _weighted(_taps(u, b), k))

  @one_pass
  def of_images(u, k):
    taps = patches_chwb.taps_of(u, 3, stride)
    return _weighted(taps, k)

  return lambda u, k: rows_of(of_images(_images(u, b), k))


@functools.cache
def image_gradient(b: int) -> Callable[[Array, Array, Array], Array]:
  """Return (dv, u, kernel) -> the gradient of u where u > 0; stride 1."""

  @one_pass
  def where_positive(dv, u, k):
    du = _weighted(_taps(dv, b)[::-1], k)
    return _positive(inside(u, b), du)

  return where_positive


def spread(dv, u, kernel, stride: int, shape, b: int) -> Array:
  """Return the gradient of u where u > 0, of another stride."""
  c, h, w = shape
  image = h, w // b, b
  columns = kernel.T.reshape(9, -1, 1, 1, 1)
  du = patches_chwb.fold(_images(dv, b), columns, (3, 3), stride, 1, image)
  du = du.reshape(c, h, w)
  return one_pass(lambda du, u: _positive(inside(u, b), du))(du, u)


@functools.cache
def tap_sums(stride: int, b: int) -> Callable[[Array, Array], Array]:
  """Return (u, dv) -> sum u_t dv of the 9 taps [c, 9].

  With a stride of 1 dv has a margin, too.
  """
  if stride == 1:
    return _summed(9)(
      lambda u, dv: [tap * inside(dv, b) for tap in _taps(u, b)]
    )

  @_summed(9)
  def of_images(u, dv):
    return [tap * dv for tap in patches_chwb.taps_of(u, 3, stride)]

  return lambda u, dv: of_images(_images(u, b), _images(dv, b))


def _taps(x: Array, b: int) -> list[Array]:
  """Return rows with a margin as the 9 taps see them."""
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


def _positive(u: Array, du: Array) -> Array:
  return lax.select(u > 0, du, lax.full_like(du, 0))
