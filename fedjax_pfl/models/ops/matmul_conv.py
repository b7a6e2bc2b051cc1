"""Convolutions as matrix products, on images [C, H, W, B].

With the batch last, a shift or a stride in space moves B consecutive numbers,
and few products need a copy of an operand (products.py):

  y = K^T P,  dK = P dy^T,  dP = K dy,  P = patches [k l C, h w B] of x

Sums of shifted arrays are in at least float32, whatever is stored.

dy^T is a copy (products.py) for patches of stride 1: without it a step of the
4convNet takes 1.03 times as long. All others are faster without.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import winograd
from fedjax_pfl.models.ops.batch_norm import wide
from fedjax_pfl.models.ops.fusion import combine, one_pass, pad
from fedjax_pfl.models.ops.products import kernel_times, times_transposed


def conv(
  x: Array,
  kernel: Array,
  *,
  stride: int,
  padding: int,
  precision: PrecisionLike = None,
) -> Array:
  """Convolve x [C, H, W, B] with kernel [k, l, C, O] to [O, h, w, B]."""
  if stride == padding == 1 and _worth_winograd(x, kernel):
    return winograd.conv(x, kernel, precision)
  return _conv(x, kernel, stride, padding, precision)


def windows(
  x: Array, kernel: Array, precision: PrecisionLike = None
) -> list[Array]:
  """Convolve x [C, 2h, 2w, B] with a 3x3 kernel; `batch_norm.pooled` follows.

  Returns y[:, p::2, q::2] for p, q if winograd computes these; else [y].
  """
  if not _worth_winograd(x, kernel):
    return [_conv(x, kernel, 1, 1, precision)]
  tile = (-1, x.shape[1] // 2, x.shape[2] // 2, x.shape[3])
  phases = winograd.phases(x, kernel, precision)
  return [y.reshape(tile) for y in phases]


def _worth_winograd(x: Array, kernel: Array) -> bool:
  # For smaller ones its many small passes take longer, above all to compile;
  # half precision is too coarse for its tiles.
  _, h, w, _ = x.shape
  if x.dtype.itemsize < 4:
    return False
  return kernel.shape[:2] == (3, 3) and kernel.shape[2] >= 16 and h * w >= 64


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _conv(
  x: Array, kernel: Array, stride: int, padding: int, precision: PrecisionLike
) -> Array:
  return _conv_forward(x, kernel, stride, padding, precision)[0]


def _conv_forward(x, kernel, stride, padding, precision):
  *size, _, o = kernel.shape
  taps = _patches(x, size, stride, padding)  # [k l C, h, w, B]
  patches = taps.reshape(len(taps), -1)
  y = kernel_times(kernel.reshape(-1, o), patches, precision)
  return y.reshape(o, *taps.shape[1:]), (patches, kernel, _shape(x))


def _conv_backward(stride, padding, precision, saved, dy):
  patches, kernel, x = saved
  *size, c, o = kernel.shape
  flat = dy.reshape(o, -1)
  dot = functools.partial(lax.dot, precision=precision)
  if size == [1, 1] or stride > 1:
    dk = times_transposed(patches, flat, precision)
  else:
    dk = dot(patches, flat.T)
  dk = dk.reshape(kernel.shape)
  taps = dot(kernel.reshape(-1, o), flat)
  taps = taps.reshape(size[0] * size[1], c, *dy.shape[1:])
  return fold(taps, None, size, stride, padding, x.shape[1:]), dk


_conv.defvjp(_conv_forward, _conv_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def depthwise(x: Array, kernel: Array, stride: int) -> Array:
  """Convolve each channel of x [C, H, W, B] with its kernel [3, 3, C]."""
  return _depthwise_forward(x, kernel, stride)[0]


def _depthwise_forward(x, kernel, stride):
  x = _margin(x)
  return _multiply_add(stride)(x, _columns(kernel)), (x, kernel)


def _depthwise_backward(stride, saved, dy):
  x, kernel = saved
  _, high, broad, b = x.shape
  dk = jnp.stack(_tap_sums(stride)(x, dy)).sum(-1)  # [9, C]
  if stride == 1:
    turned = _columns(kernel[::-1, ::-1])
    dx = _multiply_add(1)(_margin(dy), turned)
  else:
    image = high - 2, broad - 2, b
    dx = fold(dy, _columns(kernel), (3, 3), stride, 1, image)
  return dx, dk.reshape(kernel.shape).astype(kernel.dtype)


depthwise.defvjp(_depthwise_forward, _depthwise_backward)


@one_pass
def _margin(x: Array) -> Array:
  return pad(x, (1, 1), (1, 1))


@functools.cache
def _tap_sums(stride: int):
  """Return (x, dy) -> sum over pixels of x dy for 9 taps, each [C, B].

  One sum of nine numbers reads x and dy once, not nine times.
  """

  @one_pass
  def tap_sums(x, dy):
    dy = wide(dy)
    products = [wide(tap) * dy for tap in taps_of(x, 3, stride)]
    zero = np.zeros((), dy.dtype)
    return lax.reduce(products, [zero] * 9, _add_each, (1, 2))

  return tap_sums


def _add_each(a: list[Array], b: list[Array]) -> list[Array]:
  return [lax.add(*pair) for pair in zip(a, b, strict=True)]


@functools.cache
def _multiply_add(stride: int):
  @one_pass
  def multiply_add(x, k):
    taps = [wide(tap) for tap in taps_of(x, 3, stride)]
    y = combine([(1, tap * wide(k[i])) for i, tap in enumerate(taps)])
    return y.astype(x.dtype)

  return multiply_add


def _columns(kernel: Array) -> Array:
  return kernel.reshape(9, -1, 1, 1, 1)


def _shape(x: Array) -> Array:
  # An array of no channels: its shape for the backward pass, without memory.
  return x[:0]


def taps_of(x: Array, size: int, stride: int) -> list[Array]:
  """Return the padded x as each of the size*size taps of a kernel sees it."""
  rows, columns = x.shape[1] - size + 1, x.shape[2] - size + 1
  return [
    x[:, u : u + rows : stride, v : v + columns : stride]
    for u in range(size) for v in range(size)
  ]  # fmt: skip


def _patches(x: Array, size: list[int], stride: int, padding: int) -> Array:
  """Return all taps, one after the other along the channels.

  First the shifts along rows, then along columns: 3 + 3 copies, not 9.
  """
  x = pad(x, (padding, padding), (padding, padding)) if padding else x
  for axis in (2, 1):
    if size[axis - 1] * stride > 1:
      x = _shifts(size[axis - 1], stride, axis)(x)
  return x


@functools.cache
def _shifts(size: int, stride: int, axis: int):
  @one_pass
  def shifts(x):
    end = x.shape[axis] - size + 1
    taps = [lax.slice_in_dim(x, u, u + end, stride, axis) for u in range(size)]
    return lax.concatenate(taps, 0)

  return shifts


def fold(
  taps: Array, kernel: Array | None, size, stride, padding, shape
) -> Array:
  """Return the sum of taps [k l, C, h, w, B] at their places in the image.

  With a kernel [k l, C, 1, 1, 1] the taps are its products with one array.
  Taps that meet the same rows and columns modulo the stride are added up
  shifted; the sums are then interleaved.
  """
  if kernel is None and len(taps) == stride == 1 and not padding:
    return taps[0]
  h, w, _ = shape
  sums = _overlap(*size, stride, padding, h, w)(taps, kernel)
  if stride == 1:
    return sums[0][0]
  y = jnp.stack([jnp.stack(row, 3) for row in sums], 2)
  y = y.reshape(y.shape[0], stride * y.shape[1], -1, y.shape[-1])
  return y[:, :h, :w]


@functools.cache
def _overlap(k: int, m: int, stride: int, padding: int, h: int, w: int):
  """Return the function of `fold` for a kernel of k x m taps."""
  high, broad = -(-h // stride), -(-w // stride)

  # Of an axis: taps that reach pixels p, p + stride, ..., and their shifts.
  def meeting(size, p):
    shifts = ((u, u - padding - p) for u in range(size))
    return [(u, s // stride) for u, s in shifts if s % stride == 0]

  @one_pass
  def overlap(taps, kernel):
    rows, columns = taps.shape[-3:-1]

    def shifted(u, i, v, j):
      tap = m * u + v
      x = wide(taps[tap] if kernel is None else taps)
      x = x if kernel is None else x * wide(kernel[tap])
      return pad(x, (i, high - rows - i), (j, broad - columns - j))

    def add(p, q):
      meet = [(u, v) for u in meeting(k, p) for v in meeting(m, q)]
      terms = [(1, shifted(*u, *v)) for u, v in meet]
      terms = terms or [(1, lax.full_like(shifted(0, 0, 0, 0), 0))]
      return combine(terms).astype(taps.dtype)

    return [[add(p, q) for q in range(stride)] for p in range(stride)]

  return overlap
