"""The two halves of a separable convolution, for a GPU.

  pointwise    y = x K: a product over channels, [B H W, I] x [I, O]
  depthwise    y = sum_t x_t k_t: 9 shifted images, times a number a channel

Under a client axis XLA turns both into grouped convolutions, whose gradients
copy the images into other layouts; these need no copy. `norm_depthwise` has
BatchNorm and ReLU inside of the shifted images: their result is never written.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.target import target
from fedjax_pfl.models.ops import batch_norm, passes
from fedjax_pfl.models.ops.batch_norm import Running, stored, wide
from fedjax_pfl.models.ops.passes import by_hand, taps_of

MARGIN = (0, 0), (1, 1), (1, 1), (0, 0)


@by_hand(2)
def pointwise(x: Array, kernel: Array, precision: PrecisionLike):
  """Convolve x [B, H, W, I] with a kernel [I, O]."""
  y = lax.dot(_pixels(x), kernel, precision=precision)
  return y.reshape(*x.shape[:3], -1), (x, kernel)


@pointwise.gradient
def _pointwise(precision, saved, dy):
  x, kernel = saved
  dk = passes.transposed_times(_pixels(x), _pixels(dy), precision)
  dx = passes.times_transposed(_pixels(dy), kernel, precision)
  return dx.reshape(x.shape), dk


@by_hand(2)
def depthwise(x: Array, kernel: Array, stride: int):
  """Convolve each channel of x [B, H, W, C] with its kernel [3, 3, C]."""
  return _weighted(_taps(x, stride), kernel, x.dtype), (x, kernel)


@depthwise.gradient
def _depthwise(stride, saved, dy):
  x, kernel = saved
  dk = _kernel_gradient(_taps(x, stride), dy, kernel)
  dx = _image_gradient(dy, kernel, stride, x.shape)
  return stored(dx, x.dtype), dk


@by_hand(6)
def norm_depthwise(
  x: Array, scale: Array, bias: Array, mask: Array, running: Running | None,
  kernel: Array, stride: int,
):  # fmt: skip
  """Convolve relu(norm(x)) [B, H, W, C] with kernels [3, 3, C]."""
  of = batch_norm.moments(x, mask)
  taps = _activated(x, scale, bias, of, stride)
  saved = x, scale, bias, kernel, of, batch_norm.lags_of(running, of)
  return _weighted(taps, kernel, x.dtype), saved


@norm_depthwise.gradient
def _norm_depthwise(stride, saved, dy):
  x, scale, bias, kernel, of, lag = saved
  taps = _activated(x, scale, bias, of, stride)
  dk = _kernel_gradient(taps, dy, kernel)
  dz = stored(_image_gradient(dy, kernel, stride, x.shape), x.dtype)
  dx, dscale, dbias = batch_norm.gradient(x, dz, scale, bias, of)
  return dx, dscale, dbias, None, lag, dk


def _pixels(x: Array) -> Array:
  return x.reshape(-1, x.shape[-1])


def _taps(x: Array, stride: int) -> list[Array]:
  """Return x with a margin of zeros as the 9 taps of a kernel see it."""
  return taps_of(jnp.pad(x, MARGIN), (3, 3), stride)


def _activated(x, scale, bias, of, stride) -> list[Array]:
  """Return the taps of relu(norm(x)), which is zero in the margin."""
  a, c = batch_norm.affine(scale, bias, of)
  inside = np.pad(np.ones((1, *x.shape[1:3], 1), np.float32), MARGIN)
  pairs = zip(_taps(x, stride), taps_of(inside, (3, 3), stride), strict=True)
  relu = lambda tap: jnp.maximum(wide(tap) * a + c, 0) * of.weight
  return [jnp.where(here > 0, relu(tap), 0) for tap, here in pairs]


def _weighted(taps: list[Array], kernel: Array, dtype) -> Array:
  numbers = wide(kernel.reshape(9, -1))
  y = sum(wide(tap) * k for tap, k in zip(taps, numbers, strict=True))
  return stored(y, dtype)


def _kernel_gradient(taps: list[Array], dy: Array, kernel: Array) -> Array:
  # One sum of stacked taps reads taps and dy once; nine sums nine times.
  taps = [wide(tap) for tap in taps]
  if target() == 'gpu':  # the taps of an image in turn: it stays in cache
    dk = (jnp.stack(taps, 1) * wide(dy)[:, None]).sum((2, 3)).sum(0)
  else:
    dk = (jnp.stack(taps) * wide(dy)).sum((1, 2, 3))
  return dk.reshape(kernel.shape).astype(kernel.dtype)


def _image_gradient(dy, kernel, stride: int, shape) -> Array:
  """Return sum_t of dy k_t, each at the places of its tap."""
  if stride == 1:
    return _weighted(_taps(dy, 1), kernel[::-1, ::-1], wide(dy).dtype)
  dy, dx = wide(dy), 0
  sides, pixels = shape[1:3], dy.shape[1:3]
  zero = jnp.zeros((), dy.dtype)
  for t, k in enumerate(wide(kernel.reshape(9, -1))):
    edges = [(0, 0, 0)]
    for tap, side, of in zip(divmod(t, 3), sides, pixels, strict=True):
      high = side - (stride * (of - 1) + 1) - tap + 1
      edges.append((tap - 1, high, stride - 1))
    dx = dx + lax.pad(dy * k, zero, [*edges, (0, 0, 0)])
  return dx
