"""The layers of the models: convolutions, batch-statistic BatchNorm, Dense.

Plain flax modules, by the definition: `replace_layers` makes them fast. By
default initialisers are PyTorch's: kernels and biases are U(-b, b) with b =
1/sqrt(fan_in), which an initialiser of the bias in flax's layers does not know.
"""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import initializers

from fedjax_pfl.core import norm_stats
from fedjax_pfl.core.types import Array, Key
from fedjax_pfl.models.ops.batch_norm import masked_batch_norm, normalise_by

Init = Callable[[Key, tuple[int, ...]], Array]
TRAINING = 'training'  # the stream of random numbers that only training has
Inits = Callable[[tuple[int, ...]], tuple[Init, Init]]

zeros = functools.partial(initializers.zeros, dtype=float)
ones = functools.partial(initializers.ones, dtype=float)


def uniform(fan_in: int) -> Init:
  """Return an initialiser U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
  bound = 1 / math.sqrt(fan_in)

  def init(key: Key, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, float, -bound, bound)

  return init


def pytorch(shape: tuple[int, ...]) -> tuple[Init, Init]:
  """Return the initialisers of a kernel [..., in, out] and of its bias."""
  init = uniform(math.prod(shape[:-1]))
  return init, init


def glorot_normal(shape: tuple[int, ...]) -> tuple[Init, Init]:
  """Return initialisers N(0, 2 / (fan_in + fan_out)), not truncated, and 0."""
  del shape  # the initialiser gets it
  kernel = initializers.variance_scaling(1.0, 'fan_avg', 'normal', dtype=float)
  return kernel, zeros


def he_normal(shape: tuple[int, ...]) -> tuple[Init, Init]:
  """Return initialisers N(0, 2 / fan_out), not truncated, and PyTorch's.

  fan_out of a convolution is k k out.
  """
  kernel = initializers.variance_scaling(2.0, 'fan_out', 'normal', dtype=float)
  return kernel, pytorch(shape)[1]


def dense(key: Key, inputs: int, outputs: int) -> dict[str, Array]:
  """Return a dense layer as PyTorch begins it."""
  limit, shape = inputs**-0.5, (inputs, outputs)
  kernel, bias = jax.random.split(key)
  return {
    'kernel': jax.random.uniform(kernel, shape, float, -limit, limit),
    'bias': jax.random.uniform(bias, shape[1:], float, -limit, limit),
  }


def dense_and_norm(key: Key, inputs: int, outputs: int) -> dict[str, Array]:
  """Return a dense layer and a LayerNorm as PyTorch begins them."""
  norm = {'scale': jnp.ones(outputs), 'shift': jnp.zeros(outputs)}
  return dense(key, inputs, outputs) | norm


class Network(nn.Module):
  """A model whose last layer is `head`; others are in its method features."""

  num_classes: int

  def setup(self):
    self.head = Dense(self.num_classes)


class Conv(nn.Module):
  """Convolve with a kernel [k, k, in, out]; zeros lie on every side."""

  features: int
  kernel: tuple[int, int] = (3, 3)
  stride: int = 1
  padding: int = 1
  use_bias: bool = False
  inits: Inits = pytorch

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (*self.kernel, x.shape[-1], self.features)
    kernel_init, bias_init = self.inits(shape)
    kernel = self.param('kernel', kernel_init, shape)
    y = _convolve(x, kernel, self.stride, self.padding)
    if not self.use_bias:
      return y
    return y + self.param('bias', bias_init, (self.features,))


class DepthwiseConv(nn.Module):
  """Convolve every channel with its own 3x3 kernel; stored as [3, 3, C]."""

  stride: int = 1

  @nn.compact
  def __call__(self, x: Array) -> Array:
    channels = x.shape[-1]
    kernel = self.param('kernel', uniform(9), (3, 3, channels))
    return _convolve(x, kernel[:, :, None], self.stride, 1, channels)


class Pointwise(nn.Module):
  """Convolve with a 1x1 kernel without bias; stored as [in, out]."""

  features: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (x.shape[-1], self.features)
    kernel = self.param('kernel', uniform(shape[0]), shape)
    return _convolve(x, kernel[None, None], 1, 0)


def _convolve(x, kernel, stride: int, padding: int, groups: int = 1) -> Array:
  return lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    [(padding, padding)] * 2,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    feature_group_count=groups,
  )


class Dense(nn.Module):
  """Return x K + b for x [B, F]."""

  features: int
  inits: Inits = pytorch

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (x.shape[-1], self.features)
    kernel_init, bias_init = self.inits(shape)
    kernel = self.param('kernel', kernel_init, shape)
    return x @ kernel + self.param('bias', bias_init, (self.features,))


class BatchNorm(nn.Module):
  """Normalise with the statistics of this batch, in training and in testing.

    y = scale (x - mean) / sqrt(var + eps) + bias

  Mean and biased variance are over space and the rows of the mask [B] only;
  the output of other rows is zero, so that their values cannot grow from layer
  to layer. If its parameters have running statistics (`core/norm_stats.py`),
  what has no stream `TRAINING` normalises by these, and leaves them: testing,
  and training with norm_statistics 'frozen'.
  """

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    shape = x.shape[-1:]
    scale = self.param('scale', ones, shape)
    bias = self.param('bias', zeros, shape)
    if not self.has_variable('params', norm_stats.MEAN):
      return masked_batch_norm(x, scale, bias, mask)
    running = tuple(
      self.get_variable('params', name)
      for name in (norm_stats.MEAN, norm_stats.VAR)
    )
    if self.has_rng(TRAINING):
      return masked_batch_norm(x, scale, bias, mask, running)
    return normalise_by(lax.stop_gradient(running), x, scale, bias, mask)


def max_pool(x: Array, size: int = 2) -> Array:
  """Return the maximum of every size x size pixels; the rest is left out."""
  return nn.max_pool(x, (size, size), (size, size))
