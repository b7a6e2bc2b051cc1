"""BatchNorm and ReLU with the statistics of this batch, for a CPU.

  x = (y - mean) / sqrt(var + eps),   z = relu(scale x + bias)

Arrays are [C, n]: channels, and the pixels of all examples, as Winograd's tiles
and depthwise convolutions have them (norm_pixels.py has the others). w [n] is 1
for the pixels of an example, 0 for those of padding. Padding does not enter
mean and (biased) variance, and its outputs are zeros. The gradient is written
by hand:

  g = dz where z > 0,   dbias = sum g,   dscale = sum g x,
  dy = scale / sqrt(var + eps) (g - (dbias + x dscale) / n)

`pooled` adds a 2x2 max-pool: y are the four pixels of every window, z takes
their maximum, and g and both sums live on a quarter of the pixels.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.fusion import one_pass

EPSILON = 1e-5
# Products that are sums: an accelerator must not round what it adds up.
_dot = functools.partial(lax.dot, precision=lax.Precision.HIGHEST)
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


def masked_batch_norm(
  x: Array, scale: Array, bias: Array, mask: Array
) -> Array:
  """Return the normalised images [B, H, W, C]; rows outside of the mask are 0.

  By the definition: `replace_layers` has others in its place.
  """
  dtype, x = x.dtype, wide(x)
  rows = mask.reshape(-1, 1, 1, 1).astype(x.dtype)
  # At least 1: a batch without examples must not divide by 0.
  weight = rows / jnp.maximum(rows.sum() * x.shape[1] * x.shape[2], 1)
  mean = (weight * x).sum((0, 1, 2))
  var = (weight * (x - mean) ** 2).sum((0, 1, 2))
  y = (x - mean) * (scale * lax.rsqrt(var + EPSILON)) + bias
  return (rows * y).astype(dtype)


masked_batch_norm.__name__ = MASKED_NORM
masked_batch_norm = jax.jit(masked_batch_norm)


@jax.custom_vjp
def norm(y: Array, scale: Array, bias: Array, w: Array) -> Array:
  """Return z [C, n] of y [C, n]."""
  return _norm_forward(y, scale, bias, w)[0]


def _norm_forward(y, scale, bias, w):
  n = jnp.maximum(w.sum(), 1)
  (y,) = _subtract([y], _dot(y, w) / n, w)
  inverse = _inverse([y], n)
  z = _activate(y, scale * inverse, bias, w)
  return z, (y, z, scale, inverse, w, n)


def _norm_backward(saved, dz):
  y, z, scale, inverse, w, n = saved
  g = _gate(z, dz)
  dbias, dscale = _sums(g, y, inverse)
  dy = _gradient(g, y, w, *_factors(scale, inverse, dbias, dscale, n))
  return dy, dscale, dbias, None


norm.defvjp(_norm_forward, _norm_backward)


@jax.custom_vjp
def pooled(y: list[Array], scale: Array, bias: Array, w: Array) -> Array:
  """Return z [C, h w B] of y as `matmul_conv.windows` returns it.

  y is four of [C, h, w, B], or one image [C, 2h, 2w, B].
  """
  return _pooled_forward(y, scale, bias, w)[0]


def _pooled_forward(y, scale, bias, w):
  n = jnp.maximum(4 * w.sum(), 1)
  _, h, wide, b = shape = y[0].shape
  if len(y) == 1:
    mean = _dot(_flat(y[0]), jnp.tile(w, 4)) / n
    y = _split_subtract(y[0], mean, w.reshape(h // 2, wide // 2, b))
    y = [_flat(t) for t in y]
  else:
    y = [_flat(t) for t in y]
    y = _subtract(y, sum(_dot(t, w) for t in y) / n, w)
  inverse = _inverse(y, n)
  top = _extreme(y, jnp.where(scale < 0, -1, 1).astype(scale.dtype))
  z = _activate(top, scale * inverse, bias, w)
  # An array of no channels: its shape for the backward pass, without memory.
  like = jnp.zeros((0, *shape[1:]), z.dtype)
  return z, (y, top, z, scale, inverse, w, n, like)


def _pooled_backward(saved, dz):
  y, top, z, scale, inverse, w, n, like = saved
  g = _gate(z, dz)
  dbias, dscale = _sums(g, top, inverse)
  factors = _factors(scale, inverse, dbias, dscale, n)
  _, h, wide, b = like.shape
  if h * wide * b == w.size:
    dy = _unpool(y, g, top, w, *factors)
    dy = [t.reshape(-1, h, wide, b) for t in dy]
  else:
    half = (h // 2, wide // 2, b)
    y, g, top, w = jax.tree.map(
      lambda t: t.reshape(*t.shape[:-1], *half), (y, g, top, w)
    )
    dy = [_join_unpool(y, g, top, w, *factors)]
  return dy, dscale, dbias, None


pooled.defvjp(_pooled_forward, _pooled_backward)


def _flat(x: Array) -> Array:
  return x.reshape(len(x), -1)


def _inner(a: Array, b: Array) -> Array:
  return jnp.einsum('cn,cn->c', a, b, precision=lax.Precision.HIGHEST)


def _inverse(y: list[Array], n: Array) -> Array:
  return lax.rsqrt(sum(_inner(t, t) for t in y) / n + EPSILON)


def _sums(g: Array, y: Array, inverse: Array) -> tuple[Array, Array]:
  return _dot(g, jnp.ones(g.shape[1], g.dtype)), _inner(g, y) * inverse


def _factors(scale, inverse, dbias, dscale, n):
  a = scale * inverse
  return a, a * dbias / n, a * inverse * dscale / n


def _column(a: Array, like: Array) -> Array:
  return a.reshape(-1, *(1 for _ in like.shape[1:]))


@one_pass
def _subtract(y, mean, w):
  return [(t - _column(mean, t)) * w for t in y]


@one_pass
def _split_subtract(y, mean, w):
  windows = [y[:, p::2, q::2] for p in (0, 1) for q in (0, 1)]
  return [(t - _column(mean, t)) * w for t in windows]


@one_pass
def _extreme(y, sign):
  # With a negative scale the smallest pixel becomes the largest.
  sign = _column(sign, y[0])
  a, b, c, d = (sign * t for t in y)
  return sign * lax.max(lax.max(a, b), lax.max(c, d))


@one_pass
def _activate(y, a, bias, w):
  z = _column(a, y) * y + _column(bias, y)
  return lax.max(z, lax.full_like(z, 0)) * w


@one_pass
def _gate(z, dz):
  return lax.select(z > 0, dz, lax.full_like(dz, 0))


@one_pass
def _gradient(g, y, w, a, b, c):
  a, b, c = (_column(t, y) for t in (a, b, c))
  return a * g - b * w - c * y


def _window_gradients(y, g, top, w, a, b, c):
  a, b, c = (_column(t, top) for t in (a, b, c))
  g = a * g
  zero = lax.full_like(g, 0)
  free = None  # the first of equal pixels gets the gradient, as in PyTorch
  dy = []
  for t in y:
    hit = t == top
    first = hit if free is None else hit & free
    free = ~hit if free is None else free & ~hit
    dy.append(lax.select(first, g, zero) - b * w - c * t)
  return dy


_unpool = one_pass(_window_gradients)


@one_pass
def _join_unpool(y, g, top, w, a, b, c):
  dy = _window_gradients(y, g, top, w, a, b, c)
  channels, h, wide, batch = top.shape
  rows = [jnp.stack(dy[:2], 3), jnp.stack(dy[2:], 3)]
  return jnp.stack(rows, 2).reshape(channels, 2 * h, 2 * wide, batch)
