"""BatchNorm with the statistics of this batch, as few passes over memory.

  x = (y - mean) / sqrt(var + eps),   z = relu(scale x + bias + skip)

Arrays are [C, n]: channels, and pixels of all examples; w [n] is 1 for the
pixels of an example, 0 for those of padding. Padding has no part in mean and
(biased) variance, and leaves as zeros. The gradient is written by hand:

  g = dz where z > 0,   dbias = sum g,   dscale = sum g x,
  dy = scale / sqrt(var + eps) (g - dbias / n - x dscale / n)

With `pooled`, y are the four pixels of every 2x2 window, and z takes their
maximum; then g and both sums live on a quarter of the pixels.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.models.passes import one_pass
from fedjax_pfl.types import Array

EPSILON = 1e-5


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def norm(
  y: Array,
  skip: Array | None,
  scale: Array,
  bias: Array,
  w: Array,
  relu: bool,
) -> Array:
  """Return z [C, n] of y [C, n]; without relu, if it is False."""
  return _norm_forward(y, skip, scale, bias, w, relu)[0]


def _norm_forward(y, skip, scale, bias, w, relu):
  (y,), inverse, n = _centre([y], w)
  activate = _activate if relu else _affine
  z = activate(y, scale * inverse, bias, w, skip)
  return z, (y, z if relu else None, skip, scale, inverse, w, n)


def _norm_backward(relu, saved, dz):
  y, z, skip, scale, inverse, w, n = saved
  g = _gate(z, dz) if relu else _weigh(dz, w)
  dbias, dscale = _sums(g, y, inverse)
  dy = _gradient(g, y, w, *_factors(scale, inverse, dbias, dscale, n))
  return dy, None if skip is None else g, dscale, dbias, None


norm.defvjp(_norm_forward, _norm_backward)


@jax.custom_vjp
def pooled(y: list[Array], scale: Array, bias: Array, w: Array) -> Array:
  """Return z [C, n] of four y [C, n]: normalised, rectified, their maximum."""
  return _pooled_forward(y, scale, bias, w)[0]


def _pooled_forward(y, scale, bias, w):
  y, inverse, n = _centre(y, w)
  top = _extreme(y, jnp.where(scale < 0, -1, 1).astype(scale.dtype))
  z = _activate(top, scale * inverse, bias, w, None)
  return z, (y, top, z, scale, inverse, w, n)


def _pooled_backward(saved, dz):
  y, top, z, scale, inverse, w, n = saved
  g = _gate(z, dz)
  dbias, dscale = _sums(g, top, inverse)
  factors = _factors(scale, inverse, dbias, dscale, n)
  return _unpool(g, y, top, w, *factors), dscale, dbias, None


pooled.defvjp(_pooled_forward, _pooled_backward)


def _centre(y: list[Array], w: Array):
  """Return y - mean (0 where w is), 1/sqrt(var + eps), number of pixels."""
  n = jnp.maximum(len(y) * w.sum(), 1)
  y = _subtract(y, sum(lax.dot(t, w) for t in y) / n, w)
  var = sum(_inner(t, t) for t in y) / n
  return y, lax.rsqrt(var + EPSILON), n


def _inner(a: Array, b: Array) -> Array:
  return jnp.einsum('cn,cn->c', a, b)


def _sums(g: Array, y: Array, inverse: Array) -> tuple[Array, Array]:
  return lax.dot(g, jnp.ones(g.shape[1], g.dtype)), _inner(g, y) * inverse


def _factors(scale, inverse, dbias, dscale, n):
  a = scale * inverse
  return a, a * dbias / n, a * inverse * dscale / n


def _column(a: Array) -> Array:
  return a[:, None]


@one_pass
def _subtract(y, mean, w):
  return [(t - _column(mean)) * w for t in y]


@one_pass
def _extreme(y, sign):
  # A negative scale makes the least pixel the greatest.
  a, b, c, d = (_column(sign) * t for t in y)
  top = lax.max(lax.max(a, b), lax.max(c, d))
  return _column(sign) * top


@one_pass
def _affine(y, a, bias, w, skip):
  z = _column(a) * y + _column(bias)
  return (z if skip is None else z + skip) * w


@one_pass
def _activate(y, a, bias, w, skip):
  z = _column(a) * y + _column(bias)
  z = z if skip is None else z + skip
  return lax.max(z, lax.full_like(z, 0)) * w


@one_pass
def _gate(z, dz):
  return lax.select(z > 0, dz, lax.full_like(dz, 0))


@one_pass
def _weigh(dz, w):
  return dz * w


@one_pass
def _gradient(g, y, w, a, b, c):
  return _column(a) * g - _column(b) * w - _column(c) * y


@one_pass
def _unpool(g, y, top, w, a, b, c):
  g = _column(a) * g
  zero = lax.full_like(g, 0)
  free = None  # the first of equal pixels gets the gradient, like PyTorch's
  dy = []
  for t in y:
    hit = t == top
    first = hit if free is None else hit & free
    free = ~hit if free is None else free & ~hit
    dy.append(lax.select(first, g, zero) - _column(b) * w - _column(c) * t)
  return dy
