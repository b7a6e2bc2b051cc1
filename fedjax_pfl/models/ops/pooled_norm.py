"""BatchNorm, ReLU and 2x2 max-pooling of images [C, H, W, B], for a CPU.

  x = (y - mean) / sqrt(var + eps),   z = max of 2x2 pixels of relu(scale x + b)

Of convolutions that leave images so (patches_chwb.py). The gradient is that of
batch_norm.py, where g and both sums live on a quarter of the pixels:

  g = dz where z > 0,   db = sum g,   dscale = sum g x,
  dy = scale / sqrt(var + eps) (g - (db + x dscale) / n)
"""

import functools

import jax.numpy as jnp
from jax import Array, lax

from fedjax_pfl.core.target import one_pass
from fedjax_pfl.models.ops.batch_norm import EPSILON, Running, lags
from fedjax_pfl.models.ops.passes import by_hand

# Products that are sums: an accelerator must not round what it adds up.
EXACT = lax.Precision.HIGHEST
_dot = functools.partial(lax.dot, precision=EXACT)


@by_hand()
def norm_pool(
  y: Array, scale: Array, bias: Array, mask: Array, running: Running | None
):
  """Return z [C, h, w, B] of y [C, 2h, 2w, B]; 0 outside of the mask [B]."""
  _, h, w, _ = y.shape
  weight = jnp.tile(mask, h * w // 4)  # of the windows
  n = jnp.maximum(4 * weight.sum(), 1)
  mean = _dot(_flat(y), jnp.tile(weight, 4)) / n
  y = _windows(y, mean, weight.reshape(h // 2, w // 2, -1))
  var = sum(_inner(t, t) for t in y) / n
  lag, inverse = lags(running, mean, var, n), lax.rsqrt(var + EPSILON)
  top = _extreme(y, jnp.where(scale < 0, -1, 1).astype(scale.dtype))
  z = _activate(top, scale * inverse, bias, weight.reshape(h // 2, w // 2, -1))
  return z, (y, top, z, scale, inverse, weight, n, lag)


@norm_pool.gradient
def _norm_pool(saved, dz):
  y, top, z, scale, inverse, weight, n, lag = saved
  g = _gate(z, dz)
  dbias = _dot(_flat(g), jnp.ones(weight.size, g.dtype))
  dscale = _inner(g, top) * inverse
  a = scale * inverse
  b, c = a * dbias / n, a * inverse * dscale / n
  dy = _unpool(y, g, top, weight.reshape(z.shape[1:]), a, b, c)
  return dy, dscale, dbias, None, lag


def _flat(x: Array) -> Array:
  return x.reshape(len(x), -1)


def _inner(a: Array, b: Array) -> Array:
  return jnp.einsum('cn,cn->c', _flat(a), _flat(b), precision=EXACT)


def _column(a: Array) -> Array:
  return a.reshape(-1, 1, 1, 1)


@one_pass
def _windows(y, mean, weight):
  """Return the four pixels of all windows, centred; 0 where none counts."""
  windows = [y[:, p::2, q::2] for p in (0, 1) for q in (0, 1)]
  return [(t - _column(mean)) * weight for t in windows]


@one_pass
def _extreme(y, sign):
  # With a negative scale the smallest pixel becomes the largest.
  sign = _column(sign)
  a, b, c, d = (sign * t for t in y)
  return sign * lax.max(lax.max(a, b), lax.max(c, d))


@one_pass
def _activate(y, a, bias, weight):
  z = _column(a) * y + _column(bias)
  return lax.max(z, lax.full_like(z, 0)) * weight


@one_pass
def _gate(z, dz):
  return lax.select(z > 0, dz, lax.full_like(dz, 0))


@one_pass
def _unpool(y, g, top, weight, a, b, c):
  a, b, c = map(_column, (a, b, c))
  g = a * g
  zero = lax.full_like(g, 0)
  free = lax.full_like(g, True, bool)
  dy = []
  for t in y:  # the first of equal pixels gets the gradient, as in PyTorch
    hit = t == top
    dy.append(lax.select(hit & free, g, zero) - b * weight - c * t)
    free = free & ~hit
  channels, h, w, batch = top.shape
  rows = [jnp.stack(dy[:2], 3), jnp.stack(dy[2:], 3)]
  return jnp.stack(rows, 2).reshape(channels, 2 * h, 2 * w, batch)
