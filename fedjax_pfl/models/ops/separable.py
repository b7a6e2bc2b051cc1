"""The two halves of a separable convolution, for a GPU.

  pointwise    y = x K: a product over channels, [B H W, I] x [I, O]
  depthwise    y = sum_t x_t k_t: 9 shifted images, times a number a channel

Under a client axis XLA turns both into grouped convolutions, whose gradients
copy the images into other layouts. A batched product and shifted sums need no
copy: nine multiplications a number cost less than to read it once more.
`norm_depthwise` computes BatchNorm and ReLU inside of the shifted images, so
that their result is never written to memory.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import batch_norm
from fedjax_pfl.models.ops.batch_norm import stored, wide


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def pointwise(x: Array, kernel: Array, precision: PrecisionLike) -> Array:
  """Convolve x [B, H, W, I] with a kernel [I, O]."""
  return _pointwise_forward(x, kernel, precision)[0]


def _pointwise_forward(x, kernel, precision):
  y = lax.dot(_pixels(x), kernel, precision=precision)
  return y.reshape(*x.shape[:3], -1), (x, kernel)


def _pointwise_backward(precision, saved, dy):
  x, kernel = saved
  product = functools.partial(lax.dot_general, precision=precision)
  dk = product(_pixels(x), _pixels(dy), (((0,), (0,)), ((), ())))
  dx = product(_pixels(dy), kernel, (((1,), (1,)), ((), ())))
  return dx.reshape(x.shape), dk


pointwise.defvjp(_pointwise_forward, _pointwise_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def depthwise(x: Array, kernel: Array, stride: int) -> Array:
  """Convolve each channel of x [B, H, W, C] with its kernel [3, 3, C]."""
  return _depthwise_forward(x, kernel, stride)[0]


def _depthwise_forward(x, kernel, stride):
  return _weighted(_taps(x, stride), kernel, x.dtype), (x, kernel)


def _depthwise_backward(stride, saved, dy):
  x, kernel = saved
  dk = _kernel_gradient(_taps(x, stride), dy, kernel)
  dx = _image_gradient(dy, kernel, stride, x.shape)
  return stored(dx, x.dtype), dk


depthwise.defvjp(_depthwise_forward, _depthwise_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def norm_depthwise(
  x: Array, scale: Array, bias: Array, mask: Array, kernel: Array, stride: int
) -> Array:
  """Convolve relu(norm(x)) [B, H, W, C] with kernels [3, 3, C]."""
  return _norm_forward(x, scale, bias, mask, kernel, stride)[0]


def _norm_forward(x, scale, bias, mask, kernel, stride):
  of = batch_norm.moments(x, mask)
  taps = _activated(x, scale, bias, of, stride)
  return _weighted(taps, kernel, x.dtype), (x, scale, bias, kernel, of)


def _norm_backward(stride, saved, dy):
  x, scale, bias, kernel, of = saved
  taps = _activated(x, scale, bias, of, stride)
  dk = _kernel_gradient(taps, dy, kernel)
  dz = stored(_image_gradient(dy, kernel, stride, x.shape), x.dtype)
  dx, dscale, dbias = batch_norm.gradient(x, scale, bias, of, dz)
  return dx, dscale, dbias, None, dk


norm_depthwise.defvjp(_norm_forward, _norm_backward)


def _pixels(x: Array) -> Array:
  return x.reshape(-1, x.shape[-1])


def _taps(x: Array, stride: int) -> list[Array]:
  """Return x with a margin of zeros as the 9 taps of a kernel see it."""
  h, w = x.shape[1:3]
  x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
  return [
    x[:, u : u + h : stride, v : v + w : stride]
    for u in range(3) for v in range(3)
  ]  # fmt: skip


def _activated(x, scale, bias, of, stride) -> list[Array]:
  """Return the taps of relu(norm(x)), which is zero in the margin."""
  a, c = batch_norm.affine(scale, bias, of)
  inside = np.ones((1, *x.shape[1:3], 1), np.float32)
  inside = np.pad(inside, ((0, 0), (1, 1), (1, 1), (0, 0)))
  h, w = x.shape[1:3]
  taps = []
  for t, tap in enumerate(_taps(x, stride)):
    u, v = divmod(t, 3)
    here = inside[:, u : u + h : stride, v : v + w : stride] > 0
    z = jnp.maximum(wide(tap) * a + c, 0) * of.weight
    taps.append(jnp.where(here, z, 0))
  return taps


def _weighted(taps: list[Array], kernel: Array, dtype) -> Array:
  numbers = wide(kernel.reshape(9, -1))
  y = sum(wide(tap) * k for tap, k in zip(taps, numbers, strict=True))
  return stored(y, dtype)


def _kernel_gradient(taps: list[Array], dy: Array, kernel: Array) -> Array:
  # One sum of stacked taps reads taps and dy once; nine sums nine times.
  dk = (jnp.stack([wide(tap) for tap in taps]) * wide(dy)).sum((1, 2, 3))
  return dk.reshape(kernel.shape).astype(kernel.dtype)


def _image_gradient(dy, kernel, stride: int, shape) -> Array:
  """Return sum_t of dy k_t, each at the places of its tap."""
  if stride == 1:
    return _weighted(_taps(dy, 1), kernel[::-1, ::-1], wide(dy).dtype)
  _, h, w, _ = shape
  rows, columns = (stride * (side - 1) + 1 for side in dy.shape[1:3])
  dy, dx = wide(dy), 0
  zero = jnp.zeros((), dy.dtype)
  for t, k in enumerate(wide(kernel.reshape(9, -1))):
    u, v = divmod(t, 3)
    edges = [
      (0, 0, 0),
      (u - 1, h - rows - u + 1, stride - 1),
      (v - 1, w - columns - v + 1, stride - 1),
      (0, 0, 0),
    ]
    dx = dx + lax.pad(dy * k, zero, edges)
  return dx
