"""BatchNorm of pixels [n, C], for a CPU: one row of channels a pixel.

  x = (y - mean) / sqrt(var + eps),   z = relu(scale x + bias + skip) w

w [n] is 1 for the pixels of an example, 0 for those of padding. Padding does
not enter mean and (biased) variance, and its outputs are zeros. The gradient is
written by hand:

  g = dz where z > 0,   dbias = sum g,   dscale = sum g x,
  dy = scale / sqrt(var + eps) (g - (dbias + x dscale) / n)

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
  z = _affine(relu)(y, mean, scale * inverse, bias, w, skip)
  gate = z if relu else w
  return z, (y, gate, skip, scale, mean, inverse, w, n)


def _backward(relu, saved, dz):
  y, gate, skip, scale, mean, inverse, w, n = saved
  dbias, dscale = _gate_sums(dz, gate, y, mean)
  dscale = dscale * inverse
  factors = scale * inverse, dbias / n, inverse * dscale / n
  has_skip = skip is not None
  dy, *g = _gradient(has_skip)(dz, gate, y, mean, *factors, w)
  return dy, g[0] if has_skip else None, dscale, dbias, None


norm.defvjp(_forward, _backward)


@functools.cache
def _affine(relu: bool):
  @one_pass
  def affine(y, mean, a, bias, w, skip):
    z = (y - _row(mean)) * _row(a) + _row(bias)
    z = z if skip is None else z + skip
    return (lax.max(z, lax.full_like(z, 0)) if relu else z) * _column(w)

  return affine


@functools.cache
def _gradient(has_skip: bool):
  @one_pass
  def gradient(dz, gate, y, mean, a, b, c, w):
    g = _gated(dz, gate)
    shift = (_row(b) + (y - _row(mean)) * _row(c)) * _column(w)
    dy = _row(a) * (g - shift)
    return [dy, g] if has_skip else [dy]

  return gradient


def _gated(dz: Array, gate: Array) -> Array:
  """Return dz where the gate is above 0: z [n, C], or w [n] without a ReLU."""
  gate = gate if gate.ndim == 2 else lax.broadcast_in_dim(gate, dz.shape, [0])
  return lax.select(gate > 0, dz, lax.full_like(dz, 0))


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


@_summed
def _gate_sums(dz, gate, y, mean):
  g = _gated(dz, gate)
  return [g, g * (y - _row(mean))]


def _row(a: Array) -> Array:
  return a.reshape(1, -1)


def _column(a: Array) -> Array:
  return a.reshape(-1, 1)
