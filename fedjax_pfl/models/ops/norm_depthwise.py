"""relu(norm(depthwise(relu(norm(y))))) in blocks of channels, for a CPU.

Between two products of a separable network no channel meets another:

  u = relu(scale x + bias) w,           x of y as in batch_norm.py
  v = sum_t u_t k_t,                    u_t: u as tap t of 3x3 sees it
  z = relu(scale' x' + bias') w,        x' of v

So a block of channels whose arrays stay in cache reads y and writes z once. For
the gradient u and v are computed again:

  dv = norm'(v, dz where z > 0),   dk_t = sum u_t dv
  du = sum_t dv_{-t} k_t,          dy = norm'(y, du where u > 0)

with norm' of batch_norm.py. Images are rows [c, H, W B], so that an innermost
loop is as long as a row; u and dv have zeros around, [c, H + 2, (W + 2) B], in
arrays that a block leaves to the next: XLA takes eight times as long to pad as
for a ReLU. Sums are added up over some rows where they are read, the rest as a
product.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.models.ops import batch_norm, matmul_conv
from fedjax_pfl.models.ops.batch_norm import EPSILON, wide
from fedjax_pfl.models.ops.blocks import block_size, in_turn
from fedjax_pfl.models.ops.fusion import combine, one_pass

ARRAYS = 7  # of the size of y, in a block of the gradient
ROWS = 8  # at most, that are added up where they are read


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def norm_depthwise_norm(
  y: Array,
  first: Affine,
  kernel: Array,
  second: Affine,
  mask: Array,
  stride: int,
) -> Array:
  """Return z [C, h, w, B] of y [C, H, W, B] and a kernel [3, 3, C]."""
  return _forward(y, first, kernel, second, mask, stride)[0]


def _forward(y, first, kernel, second, mask, stride):
  z, moments = _values(stride)(y, first, kernel, second, mask)
  return z, (y, first, kernel, second, mask, *moments)


def _backward(stride, saved, dz):
  return *_gradients(stride)(*saved, dz), None


norm_depthwise_norm.defvjp(_forward, _backward)


def _parts(stride: int, mask: Array) -> Callable[..., Array]:
  """Return (y, first, kernel, second) -> z, layer after layer."""

  def norm(y, affine):
    rows = wide(y).reshape(len(y), -1)
    weight = jnp.tile(mask.astype(rows.dtype), y.shape[1] * y.shape[2])
    z = batch_norm.norm(rows, None, *map(wide, affine), weight, True)
    return z.reshape(y.shape).astype(y.dtype)

  def parts(y, first, kernel, second):
    v = matmul_conv.depthwise(norm(y, first), kernel, stride)
    return norm(v, second)

  return parts


@functools.cache
def _values(stride: int) -> Callable[..., tuple[Array, tuple[Moments, ...]]]:
  """Return (y, .., mask) -> z and the moments of y and v.

  Those who differentiate twice get the derivative of `_parts`: that of loops
  over blocks takes 1.6 times as long. Moments have none, as the gradient of
  `_parts` has its own.
  """
  values = jax.custom_jvp(functools.partial(_values_in_blocks, stride))

  @values.defjvp
  def derivative(primals, tangents):
    z, moments = values(*primals)
    *args, mask = primals
    dz = jax.jvp(_parts(stride, mask), tuple(args), tuple(tangents[:-1]))[1]
    return (z, moments), (dz, jax.tree.map(jnp.zeros_like, moments))

  return values


@functools.cache
def _gradients(stride: int) -> Callable[..., tuple[PyTree, ...]]:
  """Return (y, .., mask, moments, dz) -> gradients; twice as in `_values`."""
  gradients = jax.custom_jvp(functools.partial(_gradients_in_blocks, stride))

  @gradients.defjvp
  def derivative(primals, tangents):
    def of_parts(y, first, kernel, second, dz):
      parts = _parts(stride, primals[4])
      return jax.vjp(parts, y, first, kernel, second)[1](dz)

    (*args, dz), (*dargs, ddz) = primals, tangents
    return gradients(*primals), jax.jvp(
      of_parts, (*args[:4], dz), (*dargs[:4], ddz)
    )[1]

  return gradients


def _values_in_blocks(stride, y, first, kernel, second, mask):
  (_, h, w, b), dtype = y.shape, y.dtype
  of_u, of_z = _pixels(y, mask, stride)
  size, margin = _blocks(y)

  def block(margin, y, first, kernel, second):
    y = _rows(y)
    moments = _moments(y, of_u)
    u = _activate_inside(margin, y, *_line(first, moments), of_u.w)
    v = _convolve(stride, b)(u, kernel)
    after = _moments(v, of_z)
    z = _activate(v, *_line(second, after), of_z.w)
    z = z.astype(dtype).reshape(len(z), -(-h // stride), -(-w // stride), b)
    return u, (z, moments, after)

  channels = kernel.reshape(9, -1).T
  _, (z, *moments) = in_turn(block, size, margin, y, first, channels, second)
  return z, tuple(moments)


def _gradients_in_blocks(stride, y, first, kernel, second, mask, *rest):
  *moments, dz = rest
  of_u, of_z = _pixels(y, mask, stride)
  size, margin = _blocks(y)
  shape, dtype, b = y.shape, y.dtype, y.shape[3]

  def block(margins, y, dz, first, kernel, second, moments, after):
    y, dz = _rows(y), _rows(dz)
    u = _activate_inside(margins[0], y, *_line(first, moments), of_u.w)
    v = _convolve(stride, b)(u, kernel)
    g = _gate(v, *_line(second, after), dz, of_z.w)
    dsecond, factors = _sums(g, v, second, after, of_z)
    if stride == 1:
      dv = _gradient_inside(margins[1], g, v, *factors, of_z.w)
      g = _image_gradient(b)(dv, u, kernel)
      margins, dv = (u, dv), _inside(dv, b)
    else:
      dv = one_pass(_gradient)(g, v, *factors, of_z.w)
      g = _spread(dv, u, kernel, stride, y.shape, b)
      margins = (u,)
    dkernel = jnp.stack(_tap_sums(stride, b)(u, dv), 1)
    dfirst, factors = _sums(g, y, first, moments, of_u)
    dy = _gradient(g, y, *factors, of_u.w)
    dy = dy.astype(dtype).reshape(-1, *shape[1:])
    return margins, (dy, dfirst, dkernel, dsecond)

  margins = (margin, margin) if stride == 1 else (margin,)
  channels = kernel.reshape(9, -1).T
  rows = y, dz, first, channels, second, *moments
  grads = in_turn(block, size, margins, *rows, in_place=True)[1]
  dy, dfirst, dkernel, dsecond = grads
  dkernel = dkernel.T.reshape(kernel.shape).astype(kernel.dtype)
  return dy, dfirst, dkernel, dsecond


def _blocks(y: Array) -> tuple[int, Array]:
  """Return how many channels a block has, and zeros around its images."""
  y = jax.eval_shape(wide, y)
  c, h, w, b = y.shape
  size = block_size(c, ARRAYS * h * w * b * y.dtype.itemsize)
  return size, jnp.zeros((size, h + 2, (w + 2) * b), y.dtype)


def _rows(x: Array) -> Array:
  return wide(x).reshape(*x.shape[:2], -1)


def _pixels(y: Array, mask: Array, stride: int) -> tuple[Pixels, Pixels]:
  """Return the pixels of y and of its convolution."""
  mask = mask.astype(jax.eval_shape(wide, y).dtype)

  def pixels(h, w):
    number = jnp.maximum(mask.sum() * h * w, 1)
    return Pixels(number, jnp.tile(mask, w).reshape(1, 1, -1))

  _, h, w, _ = y.shape
  return pixels(h, w), pixels(-(-h // stride), -(-w // stride))


# ---- BatchNorm and ReLU of rows [c, H, n]


def _moments(y: Array, of: Pixels) -> Moments:
  (total,) = _sum(y, of.w)
  mean = total / of.number
  (squares,) = _sum_of_squares(y, mean, of.w)
  return Moments(mean, lax.rsqrt(squares / of.number + EPSILON))


def _line(affine: Affine, of: Moments) -> tuple[Array, Array, Array]:
  """Return m, a, c of scale x + bias = a (y - m) + c."""
  scale, bias = wide(affine.scale), wide(affine.bias)
  return of.mean, scale * of.inverse, bias


def _sums(g, y, affine: Affine, of: Moments, pixels: Pixels):
  """Return the gradient of scale and bias, and m, a, b, c of `_gradient`."""
  dbias, dscale = _gate_sums(g, y, of.mean)
  dscale = dscale * of.inverse
  a, n = wide(affine.scale) * of.inverse, pixels.number
  factors = of.mean, a, dbias / n, of.inverse * dscale / n
  dtype = affine.scale.dtype
  return Affine(dscale.astype(dtype), dbias.astype(dtype)), factors


def _activate(y, m, a, c, w):
  z = (y - _column(m)) * _column(a) + _column(c)
  return lax.max(z, lax.full_like(z, 0)) * w


def _gradient(g, y, m, a, b, c, w):
  centred = y - _column(m)
  return _column(a) * (g - (_column(b) + centred * _column(c)) * w)


@one_pass
def _gate(v, m, a, c, dz, w):
  z = (v - _column(m)) * _column(a) + _column(c)
  return lax.select(z > 0, dz * w, lax.full_like(dz, 0))


@one_pass
def _activate_inside(margin, y, m, a, c, w):
  return _put_inside(margin, _activate(y, m, a, c, w))


@one_pass
def _gradient_inside(margin, g, y, *factors):
  return _put_inside(margin, _gradient(g, y, *factors))


def _put_inside(margin: Array, rows: Array) -> Array:
  b = (margin.shape[2] - rows.shape[2]) // 2
  return lax.dynamic_update_slice(margin, rows, (0, 1, b))


def _inside(x: Array, b: int) -> Array:
  """Return the rows within a margin of one pixel of b numbers."""
  c, h, w = x.shape
  return lax.slice(x, (0, 1, b), (c, h - 1, w - b))


def _column(a: Array) -> Array:
  return a.reshape(-1, 1, 1)


# ---- Sums over all pixels of a channel


def _summed(f: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
  """Return the sums over pixels [c] of what f returns, rows [c, H, ..]."""

  @one_pass
  def partial_sums(*arrays):
    return list(map(_add_rows, f(*arrays)))

  return lambda *arrays: list(map(_total, partial_sums(*arrays)))


def _add_rows(x: Array) -> Array:
  high = x.shape[1]
  step = max(n for n in range(1, ROWS + 1) if high % n == 0)
  every = functools.partial(lax.slice_in_dim, x, limit_index=high, axis=1)
  return combine([(1, every(i, stride=step)) for i in range(step)])


def _total(x: Array) -> Array:
  x = x.reshape(len(x), -1)
  ones = jnp.ones(x.shape[1], x.dtype)
  return lax.dot(x, ones, precision=lax.Precision.HIGHEST)


@_summed
def _sum(y, w):
  return [y * w]


@_summed
def _sum_of_squares(y, mean, w):
  centred = (y - _column(mean)) * w
  return [centred * centred]


@_summed
def _gate_sums(g, y, mean):
  return [g, g * (y - _column(mean))]


# ---- The convolution of what has a margin, and kernels [c, 9]


@functools.cache
def _convolve(stride: int, b: int) -> Callable[[Array, Array], Array]:
  """Return (u, kernel) -> v, rows of both."""
  if stride == 1:
    return one_pass(lambda u, k: _weighted(_taps(u, b), k))

  @one_pass
  def convolve(u, k):
    taps = matmul_conv.taps_of(u, 3, stride)
    return _weighted(taps, k)

  return lambda u, k: _rows(convolve(_images(u, b), k))


@functools.cache
def _image_gradient(b: int) -> Callable[[Array, Array, Array], Array]:
  """Return (dv, u, kernel) -> the gradient of u where u > 0; stride 1."""

  @one_pass
  def image_gradient(dv, u, k):
    du = _weighted(_taps(dv, b)[::-1], k)
    return _positive(_inside(u, b), du)

  return image_gradient


def _spread(dv, u, kernel, stride: int, shape, b: int) -> Array:
  """Return the gradient of u where u > 0, of another stride."""
  c, h, w = shape
  image = h, w // b, b
  columns = kernel.T.reshape(9, -1, 1, 1, 1)
  du = matmul_conv.fold(_images(dv, b), columns, (3, 3), stride, 1, image)
  du = du.reshape(c, h, w)
  return one_pass(lambda du, u: _positive(_inside(u, b), du))(du, u)


@functools.cache
def _tap_sums(stride: int, b: int) -> Callable[[Array, Array], list[Array]]:
  """Return (u, dv) -> sum u_t dv of the 9 taps."""
  if stride == 1:
    return _summed(lambda u, dv: [tap * dv for tap in _taps(u, b)])

  @_summed
  def tap_sums(u, dv):
    return [tap * dv for tap in matmul_conv.taps_of(u, 3, stride)]

  return lambda u, dv: tap_sums(_images(u, b), _images(dv, b))


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

  return combine([(1, tap * column(t)) for t, tap in enumerate(taps)])


def _images(rows: Array, b: int) -> Array:
  return rows.reshape(*rows.shape[:2], -1, b)


def _positive(u: Array, du: Array) -> Array:
  return lax.select(u > 0, du, lax.full_like(du, 0))
