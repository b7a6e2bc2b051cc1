"""BatchNorm of pixels [n, C], for a CPU: one row of channels a pixel.

  x = (y - mean) / sqrt(var + eps),   z = relu(scale x + bias + skip) w

w [n] is 1 for the pixels of an example, 0 for those of padding. Padding does
not enter mean and (biased) variance, and its outputs are zeros. The gradient is
written by hand:

  g = dz where z > 0,   dbias = sum g,   dscale = sum g x,
  dy = scale / sqrt(var + eps) (g - (dbias + x dscale) / n)

With a skip, g is its gradient, too, and is written; without one, all who need
g compute it from y and dz: as fast as to read z, which is then not kept.

Tiles and patches leave images as [B, H, W, C]. Sums add up some rows where they
are read, the rest as XLA's sum over rows, which is as fast as a copy: a sum of
products it takes for a matrix product, under a client axis 50 times as slow.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.batch_norm import EPSILON
from fedjax_pfl.models.ops.fusion import combine, one_pass

ROWS = 8  # at most, that are added up where they are read


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def norm(
  y: Array, skip: Array | None, scale: Array, bias: Array, w: Array, relu: bool
) -> Array:
  """Return z [n, C] of y [n, C]; without the ReLU, if `relu` is False."""
  return _forward(y, skip, scale, bias, w, relu)[0]


def _forward(y, skip, scale, bias, w, relu):
  n = jnp.maximum(w.sum(), 1)
  (total,) = _sum(y, w)
  mean = total / n
  (squares,) = _sum_of_squares(y, mean, w)
  inverse = lax.rsqrt(squares / n + EPSILON)
  z = _activate(relu)(y, mean, scale * inverse, bias, w, skip)
  gate = z if relu and skip is not None else None
  return z, (y, gate, skip, scale, bias, mean, inverse, w, n)


def _backward(relu, saved, dz):
  y, gate, skip, scale, bias, mean, inverse, w, n = saved
  line = mean, scale * inverse, bias, w
  if skip is not None:
    # Not `one_pass`: XLA adds up the two gradients of z while it reads them.
    dz, relu = _gated(dz, _column(w) if gate is None else gate), False
  sums, gradient = _gradients(relu)
  dbias, dscale = sums(dz, y, *line)
  dscale = dscale * inverse
  dy = gradient(dz, y, *line, dbias / n, inverse * dscale / n)
  return dy, None if skip is None else dz, dscale, dbias, None


norm.defvjp(_forward, _backward)


@functools.cache
def _activate(relu: bool):
  @one_pass
  def activate(y, mean, a, bias, w, skip):
    z = _affine(y, mean, a, bias)
    z = z if skip is None else z + skip
    return (lax.max(z, lax.full_like(z, 0)) if relu else z) * _column(w)

  return activate


@functools.cache
def _gradients(relu: bool):
  """Return two functions: of the sums over g and g x, and of dy."""

  def gated(dz, y, mean, a, bias, w):
    g = dz * _column(w)
    return _gated(g, _affine(y, mean, a, bias)) if relu else g

  @_summed
  def sums(dz, y, mean, *line):
    g = gated(dz, y, mean, *line)
    return [g, g * (y - _row(mean))]

  @one_pass
  def gradient(dz, y, mean, a, bias, w, b, c):
    g = gated(dz, y, mean, a, bias, w)
    shift = (_row(b) + (y - _row(mean)) * _row(c)) * _column(w)
    return _row(a) * (g - shift)

  return sums, gradient


def _affine(y, mean, a, bias):
  return (y - _row(mean)) * _row(a) + _row(bias)


def _gated(dz, z):
  z = lax.broadcast_in_dim(z, dz.shape, [0, 1])
  return lax.select(z > 0, dz, lax.full_like(dz, 0))


def _summed(f: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
  """Return the sums over rows [C] of what f returns [n, C]."""

  @one_pass
  def partial_sums(*arrays):
    return list(map(_add_rows, f(*arrays)))

  return lambda *arrays: [x.sum(0) for x in partial_sums(*arrays)]


def _add_rows(x: Array) -> Array:
  step = max(k for k in range(1, ROWS + 1) if len(x) % k == 0)
  every = functools.partial(lax.slice_in_dim, x, limit_index=len(x))
  return combine([(1, every(i, stride=step)) for i in range(step)])


@_summed
def _sum(y, w):
  return [y * _column(w)]


@_summed
def _sum_of_squares(y, mean, w):
  centred = (y - _row(mean)) * _column(w)
  return [centred * centred]


def _row(a: Array) -> Array:
  return a.reshape(1, -1)


def _column(a: Array) -> Array:
  return a.reshape(-1, 1)
