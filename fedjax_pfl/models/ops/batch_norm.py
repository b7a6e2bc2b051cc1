"""BatchNorm of images [B, H, W, C] with the statistics of this batch.

  x^ = (x - mean) / sqrt(var + eps),   z = relu(scale x^ + bias + skip) w

w [B] is 1 for the rows of the mask: others do not enter mean and (biased)
variance, and their outputs are zeros. `masked_batch_norm` is the definition.
`norm` and `norm_pool` read and write images as few times as they can; a pass
takes longer than its arithmetic:

  statistics   one pass: sums of d and d^2, d = x - s, where the shift s is the
               first pixel of the first image: without a shift, E[x^2] - mean^2
               would lose digits
  gradient     dbias = sum g, dscale = sum g x^ in one pass,
               dx = scale / sqrt(var + eps) (g - (dbias + x^ dscale) / n)
               in another; g = dz where z > 0

With a skip, g is its gradient, too, and is written; without one, both passes
compute the gate z > 0 from x again: on accelerators behind a barrier, so that
XLA does not write the gate to memory (MobileNet on an H100: 27.0 instead of
25.2 MB an image). On a GPU the gate is a factor for the same reason, and both
sums are one reduction, first over each image: of fewer than some 10,000 pixels
XLA wrote what it sums (25.1 instead of 23.5 MB). On a CPU sums add up some
images where they are read, the rest as XLA's sum over rows: a sum of products
it takes for a matrix product, under a client axis 50 times as slow.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from fedjax_pfl.core.target import one_pass, target
from fedjax_pfl.models.ops import pool
from fedjax_pfl.models.ops.passes import add_some, by_hand

EPSILON = 1e-5
# What jaxprs call the function: a user's own may have its short name.
MASKED_NORM = 'fedjax_pfl_masked_batch_norm'


def wide(x: Array) -> Array:
  """Return x in at least float32: bfloat16 is too coarse for statistics."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def stored(x: Array, dtype: DTypeLike) -> Array:
  """Return x as it is written to memory: in bfloat16, if that is its dtype.

  XLA takes float32 -> bfloat16 -> float32 for superfluous: it would write x in
  float32 for those who read it as `wide`, which is twice the traffic.
  """
  if x.dtype == dtype:
    return x
  return lax.optimization_barrier(x.astype(dtype))


def beside(x: Array, mask: Array) -> Array:
  """Return the mask [B] with the axes of x [B, ..], of length 1."""
  return mask.reshape(-1, *[1] * (x.ndim - 1))


Running = tuple[Array, Array]  # [C] running_mean and running_var


def masked_batch_norm(
  x: Array,
  scale: Array,
  bias: Array,
  mask: Array,
  running: Running | None = None,
) -> Array:
  """Return the normalised images [B, .., C]; rows outside of the mask are 0.

  By the definition: `replace_layers` has others in its place. Running
  statistics have no effect on it; their gradients are `lags`.
  """
  dtype, x = x.dtype, wide(x)
  axes, rows = tuple(range(x.ndim - 1)), beside(x, mask).astype(x.dtype)
  number = rows.sum() * math.prod(x.shape[1:-1])
  # At least 1: a batch without examples must not divide by 0.
  weight = rows / jnp.maximum(number, 1)
  mean = (weight * x).sum(axes)
  var = (weight * (x - mean) ** 2).sum(axes)
  y = (x - mean) * (scale * lax.rsqrt(var + EPSILON)) + bias
  y = (rows * y).astype(dtype)
  if running is None:
    return y
  return _follow(y, running, lags(running, mean, var, number))


masked_batch_norm.__name__ = MASKED_NORM
masked_batch_norm = jax.jit(masked_batch_norm)


@by_hand()
def _follow(y: Array, running: Running, lag: Running):
  """Return y; the gradient of running statistics is their lag."""
  del running
  return y, lag


@_follow.gradient
def _followed(lag, dy):
  return dy, lag, None


def lags(
  running: Running | None, mean: Array, var: Array, number: Array
) -> Running | None:
  """Return running statistics minus those of a batch: the unbiased variance."""
  if running is None:
    return None
  var = var * (number / jnp.maximum(number - 1, 1))
  return tuple(
    leaf - lax.stop_gradient(new).astype(leaf.dtype)
    for leaf, new in zip(running, (mean, var), strict=True)
  )


def normalise_by(
  running: Running, x: Array, scale: Array, bias: Array, mask: Array
) -> Array:
  """Return images normalised by running statistics, 0 outside of the mask."""
  mean, var = map(wide, running)
  a = wide(scale) * lax.rsqrt(var + EPSILON)
  y = (wide(x) - mean) * a + wide(bias)
  return (y * beside(x, mask)).astype(x.dtype)


class Moments(NamedTuple):
  """The statistics of the rows of a mask, in at least float32."""

  mean: Array  # [C]
  inverse: Array  # [C] 1 / sqrt(var + eps)
  weight: Array  # [B, 1, 1, 1]
  number: Array  # [] pixels; at least 1


def moments(x: Array, mask: Array) -> Moments:
  """Return mean and inverse deviation of x [B, H, W, C]."""
  weight = mask.reshape(-1, 1, 1, 1).astype(jax.eval_shape(wide, x).dtype)
  number = jnp.maximum(weight.sum() * x.shape[1] * x.shape[2], 1)
  shift = wide(x[0, 0, 0])
  sums = _sums(_terms_of_moments, x, shift, weight)
  first, second = (each / number for each in sums)
  variance = jnp.maximum(second - first * first, 0)
  return Moments(shift + first, lax.rsqrt(variance + EPSILON), weight, number)


def lags_of(running: Running | None, of: Moments) -> Running | None:
  """Return `lags` of these moments."""
  return running and lags(running, of.mean, of.inverse**-2 - EPSILON, of.number)


def affine(scale: Array, bias: Array, of: Moments) -> tuple[Array, Array]:
  """Return a, c of scale x^ + bias = a x + c."""
  a = wide(scale) * of.inverse
  return a, wide(bias) - a * of.mean


@by_hand(6)
def norm(
  x: Array, skip: Array | None, scale: Array, bias: Array, mask: Array,
  running: Running | None, relu: bool,
):  # fmt: skip
  """Return z [B, H, W, C]; without the ReLU, if `relu` is False."""
  of = moments(x, mask)
  line = affine(scale, bias, of)
  z = stored(_activate(x, skip, line, of.weight, relu=relu), x.dtype)
  # With a skip the result tells the gate; else the input does, which is read.
  gate = z if relu and skip is not None else None
  return z, (x, skip, gate, scale, bias, of, lags_of(running, of))


@norm.gradient
def _norm(relu, saved, dz):
  x, skip, z, scale, bias, of, lag = saved
  if relu and z is None:
    dx, dscale, dbias = gradient(x, dz, scale, bias, of)
    return dx, None, dscale, dbias, None, lag
  g = wide(dz) * of.weight
  g = _gated(g, z) if relu else g
  sums = _sums_of_gradient(x, g, of)
  dx, dscale, dbias = gradient(x, g, scale, bias, of, sums)
  dskip = None if skip is None else stored(g, skip.dtype)
  return dx, dskip, dscale, dbias, None, lag


@by_hand(5)
def norm_pool(
  x: Array, scale: Array, bias: Array, mask: Array,
  running: Running | None, size: int,
):  # fmt: skip
  """Return the maximum of every size x size pixels of relu(norm(x)).

  The largest pixel of a window is that with the largest x, or, where scale is
  negative, with the smallest. Both sums of the gradient are over these alone.
  """
  of = moments(x, mask)
  a, c = affine(scale, bias, of)
  sign = jnp.where(a < 0, -1, 1).astype(x.dtype)
  top, won = pool.forward(x * sign, size)
  top = top * sign
  z = jnp.maximum(wide(top) * a + c, 0) * of.weight
  saved = x, top, won, scale, bias, of, lags_of(running, of)
  return stored(z, x.dtype), saved


@norm_pool.gradient
def _norm_pool(size, saved, dz):
  x, top, won, scale, bias, of, lag = saved
  a, c = affine(scale, bias, of)
  g = _gated(wide(dz) * of.weight, wide(top) * a + c)
  sums = _sums_of_gradient(top, g, of)
  spread = pool.backward(g, won, size, x.shape[1:3])
  return *gradient(x, spread, scale, bias, of, sums), None, lag


def gradient(x, dz, scale, bias, of: Moments, sums=None):
  """Return (dx, dscale, dbias) of z = relu(scale x^ + bias) w.

  With sums, which are dbias and dscale, dz is behind the ReLU already.
  """
  line = None
  if sums is None:
    line = affine(scale, bias, of)
    again = x if target() == 'cpu' else lax.optimization_barrier(x)
    sums = _sums_of_gradient(again, dz, of, line)
  dx = stored(_to_input(x, dz, sums, wide(scale), of, line), x.dtype)
  dbias, dscale = sums
  return dx, dscale.astype(scale.dtype), dbias.astype(bias.dtype)


# ---- Passes over images; with a line a, c a gradient is gated by a x + c


@one_pass
def _activate(x, skip, line, weight, *, relu):
  a, c = line
  z = wide(x) * a + c
  z = z if skip is None else z + wide(skip)
  return (lax.max(z, lax.full_like(z, 0)) if relu else z) * weight


@one_pass
def _to_input(x, dz, sums, scale, of, line):
  g = _of_gate(x, dz, of, line)
  dbias, dscale = sums
  normed = (wide(x) - of.mean) * of.inverse
  shared = (dbias + normed * dscale) / of.number
  return scale * of.inverse * (g - shared * of.weight)


def _of_gate(x, dz, of, line):
  if line is None:
    return dz
  return _gated(wide(dz) * of.weight, wide(x) * line[0] + line[1])


def _gated(g, z) -> Array:
  """Return g where z > 0, else 0."""
  if target() == 'gpu':
    return g * jnp.maximum(jnp.sign(z), 0)
  return lax.select(z > 0, g, lax.full_like(g, 0))


# ---- Sums over pixels


def _terms_of_moments(x, shift, weight):
  d = (wide(x) - shift) * weight
  return d, d * d


def _terms_of_gradient(x, dz, of, line):
  g = _of_gate(x, dz, of, line)
  return g, g * ((wide(x) - of.mean) * of.inverse)


def _sums_of_gradient(x, dz, of, line=None) -> tuple[Array, Array]:
  """Return dbias and dscale."""
  if target() == 'gpu':
    return _both_sums(*_terms_of_gradient(x, dz, of, line))
  return _sums(_terms_of_gradient, x, dz, of, line)


def _sums(terms, *args):
  rows = _some(*args, terms=terms) if target() == 'cpu' else terms(*args)
  return tuple(map(_sum, rows))


@one_pass
def _some(*args, terms):
  return [add_some(term, 0) for term in terms(*args)]


def _sum(g):
  return g.sum((0, 1, 2))


@jax.custom_jvp
def _both_sums(g, h):
  """Return both sums over pixels as one reduction."""
  zero = jnp.zeros((), g.dtype)

  def add(a, b):
    return a[0] + b[0], a[1] + b[1]

  sums = lax.reduce((g, h), (zero, zero), add, (1, 2))  # [B, C]
  return tuple(row.sum(0) for row in sums)


@_both_sums.defjvp
def _both_sums_jvp(primals, tangents):  # JAX would halve the pixels by slices
  return _both_sums(*primals), tuple(map(_sum, tangents))
