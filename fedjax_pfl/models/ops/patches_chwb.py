"""Convolutions by patches of images [C, H, W, B]: y = K^T P.

With the batch last, a shift or a stride in space moves B consecutive numbers,
and few products need a copy of an operand (passes.py):

  y = K^T P,  dK = P dy^T,  dP = K dy,  P = patches [k l C, h w B] of x

For layers before a 2x2 pooling or between separable layers; fuse.py has all
others. Sums of shifted arrays are in at least float32, whatever is stored.

dy^T is a copy (passes.py) for patches of stride 1: without it a step of the
4convNet takes 1.03 times as long. All others are faster without.
"""

import functools

import jax.numpy as jnp
from jax import Array, lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.target import one_pass
from fedjax_pfl.models.ops.batch_norm import wide
from fedjax_pfl.models.ops.passes import add_all, by_hand, pad, times_transposed


def turned(x: Array) -> Array:
  """Return images [B, H, W, C] as [C, H, W, B], or the other way round."""
  return x.transpose(3, 1, 2, 0)


@by_hand(2, 3, 4)
def conv(
  x: Array, kernel: Array, stride: int, padding: int, precision: PrecisionLike
):
  """Convolve x [C, H, W, B] with kernel [k, l, C, O] to [O, h, w, B]."""
  *size, _, o = kernel.shape
  taps = pad(x, (padding, padding), (padding, padding)) if padding else x
  # First the shifts along rows, then along columns: 3 + 3 copies, not 9.
  for axis in (2, 1):
    if size[axis - 1] * stride > 1:
      taps = _shifts(taps, size=size[axis - 1], stride=stride, axis=axis)
  patches = taps.reshape(len(taps), -1)  # of taps [k l C, h, w, B]
  y = lax.dot(kernel.reshape(-1, o).T, patches, precision=precision)
  # An array of no channels: the shape of x for the backward pass.
  return y.reshape(o, *taps.shape[1:]), (patches, kernel, x[:0])


@conv.gradient
def _conv(stride, padding, precision, saved, dy):
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


@one_pass
def _shifts(x, *, size, stride, axis):
  end = x.shape[axis] - size + 1
  taps = [lax.slice_in_dim(x, u, u + end, stride, axis) for u in range(size)]
  return lax.concatenate(taps, 0)


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
  sums = _overlap(
    taps,
    kernel,
    size=tuple(size),
    stride=stride,
    padding=padding,
    sides=(h, w),
  )
  if stride == 1:
    return sums[0][0]
  y = jnp.stack([jnp.stack(row, 3) for row in sums], 2)
  y = y.reshape(y.shape[0], stride * y.shape[1], -1, y.shape[-1])
  return y[:, :h, :w]


@one_pass
def _overlap(taps, kernel, *, size, stride, padding, sides):
  high, broad = (-(-side // stride) for side in sides)
  rows, columns = taps.shape[-3:-1]

  # Of an axis: taps that reach pixels p, p + stride, ..., and their shifts.
  def meeting(k, p):
    shifts = ((u, u - padding - p) for u in range(k))
    return [(u, s // stride) for u, s in shifts if s % stride == 0]

  def shifted(u, i, v, j):
    tap = size[1] * u + v
    x = wide(taps[tap] if kernel is None else taps)
    x = x if kernel is None else x * wide(kernel[tap])
    return pad(x, (i, high - rows - i), (j, broad - columns - j))

  def add(p, q):
    meet = [(u, v) for u in meeting(size[0], p) for v in meeting(size[1], q)]
    terms = [shifted(*u, *v) for u, v in meet]
    terms = terms or [lax.full_like(shifted(0, 0, 0, 0), 0)]
    return add_all(terms).astype(taps.dtype)

  return [[add(p, q) for q in range(stride)] for p in range(stride)]
