"""relu(norm(depthwise(relu(norm(y))))) in blocks of channels, for a CPU.

Between two products of a separable network no channel meets another:

  u = relu(scale x + bias) w,           x of y as in batch_norm.py
  v = sum_t u_t k_t,                    u_t: u as tap t of 3x3 sees it
  z = relu(scale' x' + bias') w,        x' of v

So a block of channels whose arrays stay in cache reads y and writes z once. For
the gradient u and v are computed again:

  dv = norm'(v, dz where z > 0),   dk_t = sum u_t dv
  du = sum_t dv_{-t} k_t,          dy = norm'(y, du where u > 0)

with norm' of pooled_norm.py. The passes of a block are in row_passes.py; u and
dv are in arrays with zeros around that a block leaves to the next.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import batch_norm, row_passes, separable
from fedjax_pfl.models.ops.batch_norm import EPSILON, Running, lags, wide
from fedjax_pfl.models.ops.blocks import block_size, in_turn
from fedjax_pfl.models.ops.passes import by_hand
from fedjax_pfl.models.ops.patches_chwb import turned
from fedjax_pfl.models.ops.row_passes import Affine, pixels_of, rows_of

ARRAYS = 7  # of the size of y, in a block of the gradient


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
    lags(one, mean, inverse**-2 - EPSILON, pixels.number)
    for one, (mean, inverse), pixels in zip(
      running, moments, pixels_of(y, mask, stride), strict=True
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
  of_u, of_z = pixels_of(y, mask, stride)
  size, margin = _blocks(y)

  def block(margin, y, first, kernel, second):
    y = wide(y)
    moments = row_passes.moments_of(y, of_u)
    u = _activated(margin, y, first, moments, of_u)
    v = row_passes.convolve(u, kernel, stride, b)
    after = row_passes.moments_of(v, of_z)
    z = row_passes.activate(v, *row_passes.line(second, after), of_z.w)
    return u, (z.astype(dtype), moments, after)

  rows = rows_of(y), first, kernel.reshape(9, -1).T, second
  _, (z, *moments) = in_turn(block, size, margin, *rows)
  z = z.reshape(-1, -(-h // stride), -(-w // stride), b)
  return z, tuple(moments)


def _gradients_in_blocks(stride, y, first, kernel, second, mask, *rest):
  *moments, dz = rest
  of_u, of_z = pixels_of(y, mask, stride)
  size, margin = _blocks(y)
  shape, dtype, b = y.shape, y.dtype, y.shape[3]
  norm_gradient = row_passes.norm_gradient

  def block(margins, y, dz, first, kernel, second, moments, after):
    y, dz = wide(y), wide(dz)
    u = _activated(margins[0], y, first, moments, of_u)
    v = row_passes.convolve(u, kernel, stride, b)
    g = row_passes.gate(v, *row_passes.line(second, after), dz, of_z.w)
    dsecond, factors = row_passes.affine_gradient(g, v, second, after, of_z)
    arrays = margins[1], g, v, *factors, of_z.w
    dv = row_passes.inside(*arrays, of=norm_gradient)
    g = row_passes.image_gradient(dv, u, kernel, stride, y.shape, b)
    dkernel = row_passes.tap_sums(u, dv, stride, b)
    dfirst, factors = row_passes.affine_gradient(g, y, first, moments, of_u)
    dy = norm_gradient(g, y, *factors, of_u.w)
    kept = u, dv if stride == 1 else None
    return kept, (dy.astype(dtype), dfirst, dkernel, dsecond)

  margins = margin, margin if stride == 1 else None
  channels = kernel.reshape(9, -1).T
  rows = rows_of(y), rows_of(dz), first, channels, second, *moments
  grads = in_turn(block, size, margins, *rows, in_place=True)[1]
  dy, dfirst, dkernel, dsecond = grads
  dkernel = dkernel.T.reshape(kernel.shape).astype(kernel.dtype)
  return dy.reshape(shape), dfirst, dkernel, dsecond


def _activated(margin, y, affine, moments, of) -> Array:
  line = row_passes.line(affine, moments)
  return row_passes.inside(margin, y, *line, of.w, of=row_passes.activate)


def _blocks(y: Array) -> tuple[int, Array]:
  """Return how many channels a block has, and zeros around its images."""
  y = jax.eval_shape(wide, y)
  c, h, w, b = y.shape
  size = block_size(c, ARRAYS * h * w * b * y.dtype.itemsize)
  return size, jnp.zeros((size, h + 2, (w + 2) * b), y.dtype)
