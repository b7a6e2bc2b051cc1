"""The layers of the models: convolutions, batch-statistic BatchNorm, Dense.

Inputs and outputs are images [B, H, W, C] with every conv_impl. By default
initialisers are PyTorch's: kernels and biases are U(-b, b) with b =
1/sqrt(fan_in). Parameters have JAX's default float dtype.
"""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import initializers

from fedjax_pfl.core.types import Array, Key
from fedjax_pfl.models.ops import batch_norm, conv, matmul_conv, relu_pool

Images = Array | list[Array]  # [B, H, W, C], or windows: see Conv
Init = Callable[[Key, tuple[int, ...]], Array]
Inits = Callable[[tuple[int, ...]], tuple[Init, Init]]


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
  return kernel, lambda _, shape: jnp.zeros(shape, float)


def he_normal(shape: tuple[int, ...]) -> tuple[Init, Init]:
  """Return initialisers N(0, 2 / fan_out), not truncated, and PyTorch's.

  fan_out of a convolution is k k out.
  """
  kernel = initializers.variance_scaling(2.0, 'fan_out', 'normal', dtype=float)
  return kernel, pytorch(shape)[1]


class Conv(nn.Module):
  """Convolve with a kernel [k, k, in, out].

  With `pooled`, the output must go to BatchNorm(pooled=True). For images of
  even sides, gemm then returns the windows of `matmul_conv.windows`, without
  the bias, which the normalisation removes: its gradient is exactly zero.
  """

  features: int
  kernel: tuple[int, int] = (3, 3)
  stride: int = 1
  padding: int = 1
  use_bias: bool = False
  conv_impl: str = 'auto'
  pooled: bool = False
  inits: Inits = pytorch

  @nn.compact
  def __call__(self, x: Array) -> Images:
    shape = (*self.kernel, x.shape[-1], self.features)
    kernel_init, bias_init = self.inits(shape)
    kernel = self.param('kernel', kernel_init, shape)
    if self.use_bias:
      bias = self.param('bias', bias_init, (self.features,))
    if self.pooled and self._has_windows(x):
      return matmul_conv.windows(conv.batch_last(x), kernel)
    y = conv.conv(
      x,
      kernel,
      stride=self.stride,
      padding=self.padding,
      conv_impl=self.conv_impl,
    )
    return y + bias if self.use_bias else y

  def _has_windows(self, x: Array) -> bool:
    plain = (self.kernel, self.stride, self.padding) == ((3, 3), 1, 1)
    even = x.shape[1] % 2 == x.shape[2] % 2 == 0
    return plain and even and conv.resolve(self.conv_impl) == 'gemm'


class ConvReluPool(nn.Module):
  """Convolve, add a bias, apply the ReLU, and max-pool `pool` x `pool`."""

  features: int
  kernel: tuple[int, int] = (3, 3)
  padding: int = 1
  pool: int = 2
  conv_impl: str = 'auto'
  inits: Inits = pytorch

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (*self.kernel, x.shape[-1], self.features)
    kernel_init, bias_init = self.inits(shape)
    kernel = self.param('kernel', kernel_init, shape)
    bias = self.param('bias', bias_init, (self.features,))
    y = conv.conv(
      x, kernel, stride=1, padding=self.padding, conv_impl=self.conv_impl
    )
    if conv.resolve(self.conv_impl) == 'lax':
      return max_pool(nn.relu(y + bias), self.pool)
    z = relu_pool.relu_pool(conv.batch_last(y), bias, self.pool)
    return conv.batch_first(z)


class DepthwiseConv(nn.Module):
  """Convolve every channel with its own 3x3 kernel; stored as [3, 3, C]."""

  stride: int = 1
  conv_impl: str = 'auto'

  @nn.compact
  def __call__(self, x: Array) -> Array:
    kernel = self.param('kernel', uniform(9), (3, 3, x.shape[-1]))
    return conv.depthwise(
      x, kernel, stride=self.stride, conv_impl=self.conv_impl
    )


class Pointwise(nn.Module):
  """Convolve with a 1x1 kernel without bias; stored as [in, out]."""

  features: int
  conv_impl: str = 'auto'

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (x.shape[-1], self.features)
    kernel = self.param('kernel', uniform(shape[0]), shape)
    return conv.conv(
      x, kernel[None, None], stride=1, padding=0, conv_impl=self.conv_impl
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

    y = relu(scale (x - mean) / sqrt(var + eps) + bias + skip)

  `relu`, `skip` and `pooled` (a 2x2 max-pool after the ReLU) are optional.
  Mean and biased variance are over space and the rows of the mask [B] only;
  the output of other rows is zero, so that their values cannot grow from layer
  to layer. There are no running averages.
  """

  relu: bool = False
  pooled: bool = False
  conv_impl: str = 'auto'

  @nn.compact
  def __call__(
    self, x: Images, mask: Array, skip: Array | None = None
  ) -> Array:
    windows = isinstance(x, list)
    channels = len(x[0]) if windows else x.shape[-1]
    scale = self.param('scale', lambda _, c: jnp.ones(c, float), channels)
    bias = self.param('bias', lambda _, c: jnp.zeros(c, float), channels)
    if windows:
      return _pooled(x, scale, bias, mask)
    if conv.resolve(self.conv_impl) == 'lax':
      y = _plain(x, skip, scale, bias, mask)
      y = nn.relu(y) if self.relu else y
    else:
      y = _fused(x, skip, scale, bias, mask, self.relu)
    return max_pool(y) if self.pooled else y


def max_pool(x: Array, size: int = 2) -> Array:
  """Return the maximum of every size x size pixels; the remainder is left out.

  Slices and maxima: the gradient of lax.reduce_window is slow on a CPU.
  """
  h, w = (side // size * size for side in x.shape[1:3])
  x = x[:, :h, :w]
  rows = [
    functools.reduce(jnp.maximum, [x[:, i::size, j::size] for j in range(size)])
    for i in range(size)
  ]
  return functools.reduce(jnp.maximum, rows)


def _plain(x, skip, scale, bias, mask) -> Array:
  rows = mask.reshape(-1, 1, 1, 1).astype(x.dtype)
  # At least 1: a batch without examples must not divide by 0.
  weight = rows / jnp.maximum(rows.sum() * x.shape[1] * x.shape[2], 1)
  mean = (weight * x).sum((0, 1, 2))
  var = (weight * (x - mean) ** 2).sum((0, 1, 2))
  y = (x - mean) * (scale * lax.rsqrt(var + batch_norm.EPSILON)) + bias
  return rows * (y if skip is None else y + skip)


@functools.partial(jax.jit, static_argnums=5)  # traced once for each shape
def _fused(x, skip, scale, bias, mask, relu: bool) -> Array:
  def flat(x):
    return conv.batch_last(x).reshape(x.shape[-1], -1)

  b, h, w, c = x.shape
  weight = _pixels(mask, h * w, x)
  skip = None if skip is None else flat(skip)
  y = batch_norm.norm(flat(x), skip, scale, bias, weight, relu)
  return conv.batch_first(y.reshape(c, h, w, b))


@jax.jit  # as _fused
def _pooled(windows, scale, bias, mask) -> Array:
  c, h, w, b = windows[0].shape
  if len(windows) == 1:
    h, w = h // 2, w // 2
  z = batch_norm.pooled(windows, scale, bias, _pixels(mask, h * w, windows[0]))
  return conv.batch_first(z.reshape(c, h, w, b))


def _pixels(mask: Array, times: int, like: Array) -> Array:
  return jnp.tile(mask.astype(like.dtype), times)  # [h w B]
