"""A convolution of few channels, its ReLU and max-pooling, as one product.

  z = relu(max_i y_i + bias),  y_i = pixel i of each s x s pixels of conv(x, K)

The s^2 pixels of a window read the same (k + s - 1)^2 pixels of x, so y_i is
output i of ONE convolution of stride s; its kernel is K at s^2 places among
zeros. With 5x5 kernels and 2x2 windows that is 1.44 times the FLOPs, from 36
instead of 100 patches for a window, and pooling has no strides.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.target import one_pass
from fedjax_pfl.models.ops import patches_chwb, pool, winograd
from fedjax_pfl.models.ops.passes import by_hand

MOST_FLOPS = 2  # times those of the convolution


def is_worth(
  x: tuple[int, ...], kernel: tuple[int, ...], edge: int, size: int
) -> bool:
  """Return whether to convolve images of shape x [B, H, W, C] this way."""
  k, m, channels, _ = kernel
  h, w = x[1] + 2 * edge + 1 - k, x[2] + 2 * edge + 1 - m
  flops = (k + size - 1) * (m + size - 1) / (k * m)
  return (
    channels < winograd.LEAST_CHANNELS
    and h * w >= winograd.LEAST_PIXELS
    and flops <= MOST_FLOPS
    and min(h, w) >= size
  )


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def conv_relu_pool(
  x: Array,
  kernel: Array,
  bias: Array,
  size: int,
  edge: int,
  precision: PrecisionLike = None,
) -> Array:
  """Return z [B, h, w, O] of x [B, H, W, C], with zeros on its edge."""
  x = x.transpose(3, 1, 2, 0)
  places = _at_all_places(kernel, size)
  y = patches_chwb.conv(x, places, size, edge, precision)
  z = _relu_max(y.reshape(size**2, len(bias), -1), bias)
  return z.reshape(-1, *y.shape[1:]).transpose(3, 1, 2, 0)


def _at_all_places(kernel: Array, size: int) -> Array:
  """Return [k + s - 1, l + s - 1, C, s s O]: the kernel at s^2 places."""
  for axis in (1, 0):
    edges = [[(0, 0)] * kernel.ndim for _ in range(size)]
    for p, edge in enumerate(edges):
      edge[axis] = (p, size - 1 - p)
    kernel = jnp.stack([jnp.pad(kernel, edge) for edge in edges], 3)
  return kernel.reshape(*kernel.shape[:3], -1)


@by_hand()
def _relu_max(y: Array, bias: Array):
  """Return z [O, N] of y [s s, O, N]."""
  z, won = _largest(y, bias)
  # An array of no numbers: a shape for the backward pass, without memory.
  return z, (won, y[:, :0, :0])


@_relu_max.gradient
def _relu_max_gradient(saved, dz):
  won, like = saved
  # Sums as a product, because XLA's along the last axes are slow.
  ones = jnp.ones(dz.shape[1], dz.dtype)
  dbias = lax.dot(_where_on(dz, won), ones, precision=lax.Precision.HIGHEST)
  return _of_winners(dz, won, like), dbias


@one_pass
def _largest(y, bias):
  pixels = [lax.index_in_dim(y, i, keepdims=False) for i in range(len(y))]
  top, won = pool.largest(pixels)
  return pool.relu(top, lax.expand_dims(bias, (1,)), won)


@one_pass
def _where_on(dz, won):
  off = lax.eq(won, lax.full_like(won, pool.OFF))
  return lax.select(off, lax.full_like(dz, 0), dz)


@one_pass
def _of_winners(dz, won, like):
  shape = (len(like), *dz.shape)
  pixel = lax.broadcasted_iota(jnp.int8, shape, 0)
  dz = lax.broadcast(dz, shape[:1])
  won = lax.broadcast(won, shape[:1])
  return lax.select(lax.eq(won, pixel), dz, lax.full_like(dz, 0))
