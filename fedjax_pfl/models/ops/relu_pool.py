"""Bias, ReLU and max-pool in one pass, on images [C, H, W, B].

  z = relu(top + bias),  top = the maximum of every size x size pixels of y

The bias and the ReLU do not change which pixel of a window is the largest: both
are applied last, to fewer pixels. The gradient is written by hand:

  g = dz where top + bias > 0,  dbias = sum g,
  dy = g at the first pixel of its window that equals top, as in PyTorch

Rows and columns that fill no window are left out; their gradient is zero.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.fusion import one_pass, pad


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def relu_pool(y: Array, bias: Array, size: int) -> Array:
  """Return z [C, h, w, B] of y [C, H, W, B]."""
  return _forward(y, bias, size)[0]


def _forward(y, bias, size):
  top, z = _maximum(size)(y, bias)
  return z, (y, bias, top)


def _backward(size, saved, dz):
  y, bias, top = saved
  g = _gate(top, bias, dz)
  # A product, because sums along the last axes are slow.
  flat = g.reshape(len(g), -1)
  ones = jnp.ones(flat.shape[1], flat.dtype)
  dbias = lax.dot(flat, ones, precision=lax.Precision.HIGHEST)
  return _unpool(size)(y, top, g), dbias


relu_pool.defvjp(_forward, _backward)


def _column(bias: Array) -> Array:
  return lax.reshape(bias, (*bias.shape, 1, 1, 1))


def _pixels(y: Array, size: int) -> list[Array]:
  """Return the pixels (p, q) of all windows, for p and q below size."""
  _, h, w, _ = (side // size * size for side in y.shape)
  return [
    y[:, p:h:size, q:w:size] for p in range(size) for q in range(size)
  ]  # fmt: skip


@one_pass
def _gate(top, bias, dz):
  return lax.select(top + _column(bias) > 0, dz, lax.full_like(dz, 0))


@functools.cache
def _maximum(size: int):
  @one_pass
  def maximum(y, bias):
    top = functools.reduce(lax.max, _pixels(y, size))
    z = top + _column(bias)
    return top, lax.max(z, lax.full_like(z, 0))

  return maximum


@functools.cache
def _unpool(size: int):
  @one_pass
  def unpool(y, top, g):
    zero = lax.full_like(g, 0)
    free = lax.full_like(g, True, bool)
    dy = []
    for t in _pixels(y, size):
      hit = t == top
      dy.append(lax.select(hit & free, g, zero))
      free = free & ~hit
    c, h, w, b = g.shape
    rows = [jnp.stack(dy[i : i + size], 3) for i in range(0, size**2, size)]
    joined = jnp.stack(rows, 2).reshape(c, h * size, w * size, b)
    return pad(joined, *((0, n % size) for n in y.shape[1:3]))

  return unpool
