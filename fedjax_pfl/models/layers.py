"""The layers of the models: convolution, batch-statistic BatchNorm, Dense.

Initialisers are PyTorch's defaults: with bound b = 1/sqrt(fan_in), kernels
and biases are U(-b, b). Parameters are as wide as JAX's default float.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.models import lowering as lowerings
from fedjax_pfl.types import Array, Key

EPSILON = 1e-5


def uniform(fan_in: int):
  """Return an initialiser U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
  bound = 1 / math.sqrt(fan_in)

  def init(key: Key, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, float, -bound, bound)

  return init


class Conv(nn.Module):
  """Convolve NHWC images with a kernel [k, k, in, out]."""

  features: int
  kernel: tuple[int, int] = (3, 3)
  stride: int = 1
  padding: int = 1
  use_bias: bool = False
  lowering: str = 'auto'

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (*self.kernel, x.shape[-1], self.features)
    init = uniform(math.prod(shape[:3]))
    kernel = self.param('kernel', init, shape)
    y = lowerings.conv(
      x,
      kernel,
      stride=self.stride,
      padding=self.padding,
      lowering=self.lowering,
    )
    if self.use_bias:
      y = y + self.param('bias', init, (self.features,))
    return y


class DepthwiseConv(nn.Module):
  """Convolve every channel with its own kernel; stored as [3, 3, C]."""

  stride: int = 1
  lowering: str = 'auto'

  @nn.compact
  def __call__(self, x: Array) -> Array:
    kernel = self.param('kernel', uniform(9), (3, 3, x.shape[-1]))
    return lowerings.depthwise(
      x, kernel, stride=self.stride, padding=1, lowering=self.lowering
    )


class Pointwise(nn.Module):
  """Convolve with a 1x1 kernel without bias; stored as [in, out]."""

  features: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (x.shape[-1], self.features)
    return x @ self.param('kernel', uniform(shape[0]), shape)


class Dense(nn.Module):
  """Return x K + b for x [B, F]."""

  features: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = uniform(x.shape[-1])
    kernel = self.param('kernel', init, (x.shape[-1], self.features))
    return x @ kernel + self.param('bias', init, (self.features,))


class BatchNorm(nn.Module):
  """Normalise with the statistics of this batch, in training and in testing.

    y = scale (x - mean) / sqrt(var + eps) + bias

  Mean and biased variance run over space and the rows of the mask [B] only.
  Rows outside it leave as zeros: garbage cannot grow from layer to layer.
  """

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    channels = (x.shape[-1],)
    scale = self.param('scale', lambda _, s: jnp.ones(s), channels)
    bias = self.param('bias', lambda _, s: jnp.zeros(s), channels)
    rows = mask.reshape(-1, *(1 for _ in x.shape[1:])).astype(x.dtype)
    axes = tuple(range(x.ndim - 1))
    pixels = math.prod(x.shape[1:-1])
    # At least 1, so that a batch without examples divides by something.
    weight = rows / jnp.maximum(rows.sum() * pixels, 1)
    mean = (weight * x).sum(axes)
    var = (weight * (x - mean) ** 2).sum(axes)
    y = (x - mean) * (scale * jax.lax.rsqrt(var + EPSILON)) + bias
    return rows * y


def max_pool(x: Array) -> Array:
  """Halve an image by the maximum of 2x2 pixels; an odd last line is left out.

  Slices and maxima: the gradient of lax.reduce_window is slow on a CPU.
  """
  h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
  x = x[:, :h, :w]
  top = jnp.maximum(x[:, ::2, ::2], x[:, ::2, 1::2])
  bottom = jnp.maximum(x[:, 1::2, ::2], x[:, 1::2, 1::2])
  return jnp.maximum(top, bottom)
