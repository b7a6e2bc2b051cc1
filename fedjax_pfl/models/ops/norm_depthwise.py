"""relu(norm(depthwise(relu(norm(y))))) in blocks of channels, for a CPU.

Between two products of a separable network no channel meets another:

  u = relu(scale x + bias) w,           x of y as in batch_norm.py
  v = sum_t u_t k_t,                    u_t: u as tap t of 3x3 sees it
  z = relu(scale' x' + bias') w,        x' of v

So a block of channels whose arrays stay in cache reads y and writes z once. For
the gradient u and v are computed again:

  dv = norm'(v, dz where z > 0),   dk_t = sum u_t dv
  du = sum_t dv_{-t} k_t,          dy = norm'(y, du where u > 0)

with norm' of pooled_norm.py. A block has images as rows [c, H, W B]: an
innermost loop is as long as a row. What a convolution reads, u and dv, has
zeros around, [c, H + 2, (W + 2) B], and is written into an array that has them,
which a block leaves to the next (`_inside`): XLA takes eight times as long to
pad as for a ReLU. Sums are added up over some rows where they are read, the
rest as a product.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedjax_pfl.core.target import one_pass
from fedjax_pfl.models.ops import batch_norm, patches_chwb, separable
from fedjax_pfl.models.ops.batch_norm import EPSILON, Running, lags, wide
from fedjax_pfl.models.ops.blocks import block_size, in_turn
from fedjax_pfl.models.ops.passes import add_all, add_some, by_hand, taps_of
from fedjax_pfl.models.ops.patches_chwb import turned

ARRAYS = 7  # of the size of y, in a block of the gradient
Affine = tuple[Array, Array]  # [C] scale and bias, what BatchNorm learns
Moments = tuple[Array, Array]  # [C] mean and 1 / sqrt(var + eps) of a batch


class Pixels(NamedTuple):
  """The pixels of images, of which a mask [B] counts some."""

  number: Array  # [] of those that count; at least 1
  w: Array  # [1, 1, W B] 1 where they count


@by_hand(6)
def norm_depthwise_norm(
  y: Array,
  first: Affine,
  kernel: Array,
  second: Affine,
  mask: Array,
  running: tuple[Running, Running] | None,
  stride: int,
):
  """Return z [C, h, w, B] of y [C, H, W, B] and a kernel [3, 3, C]."""
  fast = _with_derivative_of(_plain_values, _values_in_blocks, stride)
  z, moments = fast(y, first, kernel, second, mask)
  lag = running and tuple(
    lags(statistics, mean, inverse**-2 - EPSILON, pixels.number)
    for statistics, (mean, inverse), pixels in zip(
      running, moments, _pixels_of(y, mask, stride), strict=True
    )
  )
  return z, (lag, y, first, kernel, second, mask, *moments)


@norm_depthwise_norm.gradient
def _norm_depthwise_norm(stride, saved, dz):
  fast = _with_derivative_of(_plain_gradients, _gradients_in_blocks, stride)
  lag, *saved = saved
  return *fast(*saved, dz), None, lag


@functools.cache
def _with_derivative_of(plain: Callable, in_blocks: Callable, stride: int):
  """Return in_blocks for a stride, with the derivative of `plain`.

  For those who differentiate twice: the derivative of loops over blocks takes
  1.6 times as long.
  """
  fast = jax.custom_jvp(functools.partial(in_blocks, stride))

  @fast.defjvp
  def derivative(primals, tangents):
    slow = functools.partial(plain, stride)
    return fast(*primals), jax.jvp(slow, primals, tangents)[1]

  return fast


def _plain_values(stride, y, first, kernel, second, mask):
  """Return z, layer after layer, and moments, whose derivative is in z's."""
  v = separable.norm_depthwise(turned(y), *first, mask, None, kernel, stride)
  z = turned(batch_norm.norm(v, None, *second, mask, None, True))
  none = jnp.zeros(len(y), jax.eval_shape(wide, y).dtype)
  return z, ((none, none),) * 2


def _plain_gradients(stride, y, first, kernel, second, mask, *rest):
  def values(*args):
    return _plain_values(stride, *args, mask)[0]

  return jax.vjp(values, y, first, kernel, second)[1](rest[-1])


def _values_in_blocks(stride, y, first, kernel, second, mask):
  (_, h, w, b), dtype = y.shape, y.dtype
  of_u, of_z = _pixels_of(y, mask, stride)
  size, margin = _blocks(y)

  def block(margin, y, first, kernel, second):
    y = wide(y)
    moments = _moments_of(y, of_u)
    u = _activated(margin, y, first, moments, of_u)
    v = _convolved(u, kernel, stride, b)
    after = _moments_of(v, of_z)
    z = _activate(v, *_line(second, after), of_z.w)
    return u, (z.astype(dtype), moments, after)

  rows = _rows_of(y), first, kernel.reshape(9, -1).T, second
  _, (z, *moments) = in_turn(block, size, margin, rows)
  z = z.reshape(-1, -(-h // stride), -(-w // stride), b)
  return z, tuple(moments)


def _gradients_in_blocks(stride, y, first, kernel, second, mask, *rest):
  *moments, dz = rest
  of_u, of_z = _pixels_of(y, mask, stride)
  size, margin = _blocks(y)
  shape, dtype, b = y.shape, y.dtype, y.shape[3]

  def block(margins, y, dz, first, kernel, second, moments, after):
    y, dz = wide(y), wide(dz)
    u = _activated(margins[0], y, first, moments, of_u)
    v = _convolved(u, kernel, stride, b)
    g = _gate(v, *_line(second, after), dz, of_z.w)
    dsecond, factors = _affine_gradient(g, v, second, after, of_z)
    dv = _inside(margins[1], g, v, *factors, of_z.w, of=_norm_gradient)
    g = _image_gradient(dv, u, kernel, stride, y.shape, b)
    dkernel = _tap_sums(u, dv, stride, b)
    dfirst, factors = _affine_gradient(g, y, first, moments, of_u)
    dy = _norm_gradient(g, y, *factors, of_u.w)
    kept = u, dv if stride == 1 else None
    return kept, (dy.astype(dtype), dfirst, dkernel, dsecond)

  margins = margin, margin if stride == 1 else None
  channels = kernel.reshape(9, -1).T
  rows = _rows_of(y), _rows_of(dz), first, channels, second, *moments
  grads = in_turn(block, size, margins, rows, in_place=True)[1]
  dy, dfirst, dkernel, dsecond = grads
  dkernel = dkernel.T.reshape(kernel.shape).astype(kernel.dtype)
  return dy.reshape(shape), dfirst, dkernel, dsecond


def _activated(margin, y, affine, moments, of) -> Array:
  return _inside(margin, y, *_line(affine, moments), of.w, of=_activate)


def _blocks(y: Array) -> tuple[int, Array]:
  """Return how many channels a block has, and zeros around its images."""
  y = jax.eval_shape(wide, y)
  c, h, w, b = y.shape
  size = block_size(c, ARRAYS * h * w * b * y.dtype.itemsize)
  return size, jnp.zeros((size, h + 2, (w + 2) * b), y.dtype)


def _rows_of(x: Array) -> Array:
  """Return images [c, H, W, B] as rows [c, H, W B]."""
  return x.reshape(*x.shape[:2], -1)


def _pixels_of(y: Array, mask: Array, stride: int) -> tuple[Pixels, Pixels]:
  """Return the pixels of y and of its convolution."""
  mask = mask.astype(jax.eval_shape(wide, y).dtype)

  def pixels(h, w):
    number = jnp.maximum(mask.sum() * h * w, 1)
    return Pixels(number, jnp.tile(mask, w).reshape(1, 1, -1))

  _, h, w, _ = y.shape
  return pixels(h, w), pixels(-(-h // stride), -(-w // stride))


# ---- BatchNorm and ReLU of rows [c, H, n]


def _moments_of(y: Array, of: Pixels) -> Moments:
  mean = _sums(_terms_of_mean, 1, y, of.w)[:, 0] / of.number
  squares = _sums(_terms_of_variance, 1, y, mean, of.w)[:, 0]
  return mean, lax.rsqrt(squares / of.number + EPSILON)


def _line(affine: Affine, of: Moments) -> tuple[Array, Array, Array]:
  """Return m, a, c of scale x + bias = a (y - m) + c."""
  (mean, inverse), (scale, bias) = of, map(wide, affine)
  return mean, scale * inverse, bias


def _affine_gradient(g, y, affine: Affine, of: Moments, pixels: Pixels):
  """Return the gradient of scale and bias, and what `_norm_gradient` takes."""
  (mean, inverse), (scale, _) = of, affine
  dbias, dscale = _sums(_terms_of_gradient, 2, g, y, mean).T
  dscale = dscale * inverse
  a, n = wide(scale) * inverse, pixels.number
  factors = mean, a, dbias / n, inverse * dscale / n
  return (dscale.astype(scale.dtype), dbias.astype(scale.dtype)), factors


def _activate(y, m, a, c, w):
  """Return relu(a (y - m) + c) of the pixels that count."""
  z = (y - _column(m)) * _column(a) + _column(c)
  return lax.max(z, lax.full_like(z, 0)) * w


def _norm_gradient(g, y, m, a, b, c, w):
  """Return the gradient of y from that of what BatchNorm made of it."""
  centred = y - _column(m)
  return _column(a) * (g - (_column(b) + centred * _column(c)) * w)


@one_pass
def _gate(v, m, a, c, dz, w):
  """Return dz where `_activate` is above 0."""
  z = (v - _column(m)) * _column(a) + _column(c)
  return lax.select(z > 0, dz * w, lax.full_like(dz, 0))


@one_pass
def _inside(margin, *arrays, of):
  """Return the rows of(*arrays) within zeros; without a margin as they are."""
  rows = of(*arrays)
  if margin is None:
    return rows
  b = (margin.shape[2] - rows.shape[2]) // 2
  return lax.dynamic_update_slice(margin, rows, (0, 1, b))


def _column(a: Array) -> Array:
  return a.reshape(-1, 1, 1)


# ---- Sums over all pixels of a channel


def _sums(terms, n: int, *arrays, **constants) -> Array:
  """Return the sums [c, n] of n terms, rows [c, H, ..]."""
  rows = _partial_sums(*arrays, terms=terms, **constants)
  rows = rows.reshape(len(rows) * n, -1)
  ones = jnp.ones(rows.shape[1], rows.dtype)
  total = lax.dot(rows, ones, precision=lax.Precision.HIGHEST)
  return total.reshape(-1, n)


@one_pass
def _partial_sums(*arrays, terms, **constants):
  sums = [add_some(x, 1) for x in terms(*arrays, **constants)]
  return lax.concatenate(sums, 1)


def _terms_of_mean(y, w):
  return [y * w]


def _terms_of_variance(y, mean, w):
  centred = (y - _column(mean)) * w
  return [centred * centred]


def _terms_of_gradient(g, y, mean):
  return [g, g * (y - _column(mean))]


# ---- The convolution of what has a margin, and kernels [c, 9]. With another
# stride than 1 it is that of images; b numbers are a pixel.


def _convolved(u: Array, kernel: Array, stride: int, b: int) -> Array:
  """Return the rows v of the rows u."""
  u = u if stride == 1 else _images(u, b)
  return _rows_of(_convolve(u, kernel, stride=stride, b=b))


@one_pass
def _convolve(u, kernel, *, stride, b):
  return _weighted(_taps(u, stride, b), kernel)


def _image_gradient(dv, u, kernel, stride: int, shape, b: int) -> Array:
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


def _tap_sums(u: Array, dv: Array, stride: int, b: int) -> Array:
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
