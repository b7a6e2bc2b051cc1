"""Bias, ReLU and max-pool in one pass, on images [C, H, W, B] or [B, H, W, C].

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

OFF = -1  # the winner of a window that the ReLU turns off


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def relu_pool(y: Array, bias: Array, size: int, channels: int = 0) -> Array:
  """Return z [C, h, w, B] of y [C, H, W, B]; `channels` is the axis of C."""
  return _forward(y, bias, size, channels)[0]


def _forward(y, bias, size, channels):
  top, z = _maximum(size, channels)(y, bias)
  return z, (y, bias, top)


def _backward(size, channels, saved, dz):
  y, bias, top = saved
  g = _gate(channels)(top, bias, dz)
  return _unpool(size)(y, top, g), sum_but(channels, g)


relu_pool.defvjp(_forward, _backward)


def sum_but(axis: int, x: Array) -> Array:
  """Return the sum over all axes but this one, the first or the last.

  A product, because XLA's sums along the last axes are slow.
  """
  flat = x.reshape((len(x), -1) if axis == 0 else (-1, x.shape[-1]))
  ones = jnp.ones(flat.shape[1 if axis == 0 else 0], flat.dtype)
  pair = (flat, ones) if axis == 0 else (ones, flat)
  return lax.dot(*pair, precision=lax.Precision.HIGHEST)


@one_pass
def where_on(dz: Array, won: Array) -> Array:
  """Return dz where the ReLU of a window is on."""
  off = lax.eq(won, lax.full_like(won, OFF))
  return lax.select(off, lax.full_like(dz, 0), dz)


def _along(bias: Array, channels: int) -> Array:
  shape = [1] * 4
  shape[channels] = len(bias)
  return lax.reshape(bias, shape)


def _pixels(y: Array, size: int) -> list[Array]:
  """Return the pixels (p, q) of all windows, for p and q below size."""
  _, h, w, _ = (side // size * size for side in y.shape)
  return [
    y[:, p:h:size, q:w:size] for p in range(size) for q in range(size)
  ]  # fmt: skip


@functools.cache
def _gate(channels: int):
  @one_pass
  def gate(top, bias, dz):
    is_on = top + _along(bias, channels) > 0
    return lax.select(is_on, dz, lax.full_like(dz, 0))

  return gate


@functools.cache
def _maximum(size: int, channels: int):
  @one_pass
  def maximum(y, bias):
    top = functools.reduce(lax.max, _pixels(y, size))
    z = top + _along(bias, channels)
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
