"""BatchNorm for a GPU: images [B, H, W, C], few passes over memory.

  x^ = (x - mean) / sqrt(var + eps),   z = relu(scale x^ + bias + skip) w

w [B] is 1 for the rows of the mask. What counts there is traffic: a pass that
reads or writes the images takes longer than its arithmetic.

  statistics   one pass: sums of d and d^2, d = x - s, where the shift s is the
               first pixel of the first image: without a shift, E[x^2] - mean^2
               would lose digits
  gradient     dbias = sum g, dscale = sum g x^ in one pass,
               dx = scale / sqrt(var + eps) (g - (dbias + x^ dscale) / n)
               in another; g = dz where z > 0

Both passes compute the gate z > 0 from x again. The barrier keeps XLA from
finding that they are equal: it would write the gate to memory in a pass of its
own (MobileNet on an H100: 27.0 instead of 25.2 MB an image). For the same
reason the gate is a factor, not a choice. Both sums are one reduction, which
has fewer kernels. A TPU, where neither was compared, has a choice and two sums.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import pool
from fedjax_pfl.models.ops.batch_norm import EPSILON, stored, wide


class Moments(NamedTuple):
  """The statistics of the rows of a mask, in at least float32."""

  mean: Array  # [C]
  inverse: Array  # [C] 1 / sqrt(var + eps)
  weight: Array  # [B, 1, 1, 1]
  number: Array  # [] pixels; at least 1


def moments(x: Array, mask: Array) -> Moments:
  """Return mean and inverse deviation of x [B, H, W, C]."""
  x = wide(x)
  weight = mask.reshape(-1, 1, 1, 1).astype(x.dtype)
  number = jnp.maximum(weight.sum() * x.shape[1] * x.shape[2], 1)
  shift = x[0, 0, 0]
  d = (x - shift) * weight
  first, second = d.sum((0, 1, 2)) / number, (d * d).sum((0, 1, 2)) / number
  variance = jnp.maximum(second - first * first, 0)
  return Moments(shift + first, lax.rsqrt(variance + EPSILON), weight, number)


def affine(scale: Array, bias: Array, of: Moments) -> tuple[Array, Array]:
  """Return a, c of scale x^ + bias = a x + c."""
  a = wide(scale) * of.inverse
  return a, wide(bias) - a * of.mean


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def norm(
  x: Array, skip: Array | None, scale: Array, bias: Array, mask: Array,
  relu: bool,
) -> Array:  # fmt: skip
  """Return z [B, H, W, C]; without the ReLU, if `relu` is False."""
  return _forward(x, skip, scale, bias, mask, relu)[0]


def _forward(x, skip, scale, bias, mask, relu):
  of = moments(x, mask)
  z = _activate(x, skip, affine(scale, bias, of), of.weight, relu)
  z = stored(z, x.dtype)
  # With a skip the result tells the gate; else the input does, which is read.
  gate = z if relu and skip is not None else None
  return z, (x, skip, gate, scale, bias, of)


def _activate(x, skip, affine, weight, relu):
  a, c = affine
  z = wide(x) * a + c
  z = z if skip is None else z + wide(skip)
  return (jnp.maximum(z, 0) if relu else z) * weight


def _backward(relu, saved, dz):
  x, skip, z, scale, bias, of = saved
  if relu and z is None:
    dx, dscale, dbias = gradient(x, scale, bias, of, dz)
    return dx, None, dscale, dbias, None
  g = wide(dz) * of.weight
  g = _gated(g, z) if relu else g
  sums = _sums(x, g, of)
  dx, dscale, dbias = _gradient(x, g, sums, scale, bias, of)
  dskip = None if skip is None else stored(g, skip.dtype)
  return dx, dskip, dscale, dbias, None


norm.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def norm_pool(
  x: Array, scale: Array, bias: Array, mask: Array, size: int
) -> Array:
  """Return the maximum of every size x size pixels of relu(norm(x)).

  The largest pixel of a window is that with the largest x, or, where scale is
  negative, with the smallest. Both sums of the gradient are over these pixels
  alone; the gradient of the pooling is never written to memory.
  """
  return _pool_forward(x, scale, bias, mask, size)[0]


def _pool_forward(x, scale, bias, mask, size):
  of = moments(x, mask)
  a, c = affine(scale, bias, of)
  sign = jnp.where(a < 0, -1, 1).astype(x.dtype)
  top, won = pool.forward(x * sign, size)
  top = top * sign
  z = jnp.maximum(wide(top) * a + c, 0) * of.weight
  return stored(z, x.dtype), (x, top, won, scale, bias, of)


def _pool_backward(size, saved, dz):
  x, top, won, scale, bias, of = saved
  a, c = affine(scale, bias, of)
  g = _gated(wide(dz) * of.weight, wide(top) * a + c)
  sums = _sums(top, g, of)
  spread = pool.backward(g, won, size, x.shape[1:3])
  return *_gradient(x, spread, sums, scale, bias, of), None


norm_pool.defvjp(_pool_forward, _pool_backward)


def gradient(
  x: Array, scale: Array, bias: Array, of: Moments, dz: Array
) -> tuple[Array, Array, Array]:
  """Return (dx, dscale, dbias) of z = relu(scale x^ + bias) w."""
  a, c = affine(scale, bias, of)

  def gated(x):
    return _gated(wide(dz) * of.weight, wide(x) * a + c)

  again = lax.optimization_barrier(x)
  sums = _sums(again, gated(again), of)
  return _gradient(x, gated(x), sums, scale, bias, of)


def _gated(g, z) -> Array:
  """Return g where z > 0, else 0."""
  if target() == 'tpu':
    return jnp.where(z > 0, g, 0)
  return g * jnp.maximum(jnp.sign(z), 0)


def _sums(x, g, of) -> tuple[Array, Array]:
  """Return dbias and dscale."""
  normed = (wide(x) - of.mean) * of.inverse
  if target() == 'tpu':
    return _sum(g), _sum(g * normed)
  return _both_sums(g, g * normed)


@jax.custom_jvp
def _both_sums(g, h):
  """Return both sums over pixels as one reduction."""
  zero = jnp.zeros((), g.dtype)
  return lax.reduce((g, h), (zero, zero), _add_pairs, (0, 1, 2))


@_both_sums.defjvp
def _both_sums_jvp(primals, tangents):  # JAX would halve the pixels by slices
  return _both_sums(*primals), tuple(map(_sum, tangents))


def _sum(g):
  return g.sum((0, 1, 2))


def _add_pairs(one, other):
  return one[0] + other[0], one[1] + other[1]


def _gradient(x, g, sums, scale, bias, of) -> tuple[Array, Array, Array]:
  """Return (dx, dscale, dbias) from g and the sums (dbias, dscale)."""
  dbias, dscale = sums
  normed = (wide(x) - of.mean) * of.inverse
  shared = (dbias + normed * dscale) / of.number
  dx = wide(scale) * of.inverse * (g - shared * of.weight)
  dscale, dbias = dscale.astype(scale.dtype), dbias.astype(bias.dtype)
  return stored(dx, x.dtype), dscale, dbias
