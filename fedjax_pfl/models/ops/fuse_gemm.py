"""Layers as matrix products: the way of a CPU, `conv_impl='gemm'`.

pool(relu(conv + bias))        relu_pool.py
pool(relu(norm(conv)))         batch_norm.py, with Winograd's tiles as windows
relu(norm(x) + skip)           norm_pixels.py
relu(norm(depthwise(relu(norm(x)))))     norm_depthwise.py
"""

import functools

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import (
  batch_norm,
  conv,
  norm_depthwise,
  norm_pixels,
  pool,
  relu_pool,
  tile_conv,
  window_conv,
)
from fedjax_pfl.models.ops.batch_norm import wide
from fedjax_pfl.models.ops.deferred import (
  Add,
  Bias,
  Conv,
  Deferred,
  Layer,
  Norm,
  Pool,
  Relu,
  Row,
  Value,
  compute,
  without_bias,
)


def fuse(layer: Layer) -> Array:
  """Return the result of a layer, with what it is made of."""
  match layer:
    case Conv(x, kernel, stride, _, depthwise=True):
      return conv.depthwise(compute(x), kernel, stride)
    case Conv(x, kernel, stride, padding, _, precision):
      return conv.conv(x, kernel, stride, padding, precision)
    case Bias(of, bias):
      return compute(of) + bias
    case Relu(Deferred(Pool(Deferred(Conv() | Bias()) as of, size))):
      return _relu_pool(of, size)
    case Pool(Deferred(Relu(Deferred(Conv() | Bias()) as of)), size):
      return _relu_pool(of, size)
    case Pool(Deferred(Relu(Deferred(Norm() as n))), 2) if _has_windows(n):
      y = without_bias(n.of).layer
      windows = conv.windows(y.x, y.kernel, y.precision)
      return _pooled(windows, n.scale, n.bias, n.mask)
    case Relu(Deferred(Norm() as n)) if first := _separable_norm(n):
      kernel, stride = without_bias(n.of).layer[1:3]
      lines = (first.scale, first.bias), kernel, (n.scale, n.bias)
      y = _before_separable(first)
      return _separable(y, *lines, n.mask, stride)
    case Norm():
      return _normalise(layer, None, relu=False)
    case Add(Deferred(Norm() as norm), skip):
      return _normalise(norm, skip, relu=False)
    case Relu(Deferred(Norm() as norm)):
      return _normalise(norm, None, relu=True)
    case Relu(Deferred(Add(Deferred(Norm() as norm), skip))):
      return _normalise(norm, skip, relu=True)
    case Relu(of):
      return jax.nn.relu(compute(of))
    case Pool(Deferred(Relu(of)), size):  # the ReLU of fewer pixels
      return jax.nn.relu(pool.max_pool(compute(of), size))
    case Pool(of, size):
      return pool.max_pool(compute(of), size)
    case Row(vector, shape):
      return jnp.broadcast_to(vector, shape)
  raise AssertionError(layer)


def _relu_pool(of: Deferred, size: int) -> Array:
  layer = of.layer
  y, bias = layer if isinstance(layer, Bias) else (of, None)
  if bias is None:
    bias = jnp.zeros(of.shape[-1], layer.kernel.dtype)
  match y:
    case Deferred(Conv(x, kernel, 1, pad, False, precision)):
      args = x, kernel, bias, size, pad[0][0], precision
      plan = conv.plan_of(x, kernel, 1, pad, size)
      if plan == 'windows':
        return window_conv.conv_relu_pool(*args)
      if plan == 'pooled tiles':
        return tile_conv.conv_relu_pool(*args)
  if _is_batch_first(layer):
    return relu_pool.relu_pool(compute(y), bias, size, 3)
  y = conv.batch_last(compute(y))
  return conv.batch_first(relu_pool.relu_pool(y, bias, size))


def _is_batch_first(layer: Layer) -> bool:
  """Return whether a convolution leaves its images in this order."""
  match layer:
    case Bias(Deferred(of)):
      return _is_batch_first(of)
    case Conv(x, kernel, stride, padding, depthwise=False):
      return conv.plan_of(x, kernel, stride, padding) != 'once'
  return False


def _has_windows(norm: Norm) -> bool:
  match without_bias(norm.of):
    case Deferred(Conv(x, kernel, 1, ((1, 1), (1, 1)), depthwise=False)):
      even = x.shape[1] % 2 == x.shape[2] % 2 == 0
      return kernel.shape[:2] == (3, 3) and even
  return False


def _separable_norm(norm: Norm) -> Norm | None:
  """Return the BatchNorm before ReLU and a depthwise convolution, if any."""
  match without_bias(norm.of):
    case Deferred(Conv(Deferred(Relu(Deferred(first))), depthwise=True)):
      is_one = isinstance(first, Norm) and first.mask is norm.mask
      return first if is_one else None
  return None


def _before_separable(norm: Norm) -> Array:
  """Return what the first BatchNorm gets, as it leaves a convolution."""
  match without_bias(norm.of):
    case Deferred(Conv(x, kernel, stride, padding, False, precision)):
      args = x, kernel, stride, padding, precision
      return conv.conv_before_separable(*args)
    case of:
      return compute(of)


def _normalise(norm: Norm, skip: Value | None, relu: bool) -> Array:
  skip = None if skip is None else compute(skip)
  match without_bias(norm.of):
    case Deferred(Conv(x, kernel, stride, padding, False, precision)):
      y = conv.conv_before_norm(x, kernel, stride, padding, precision)
    case of:
      y = compute(of)
  return _fused(y, skip, norm.scale, norm.bias, norm.mask, relu)


@functools.partial(jax.jit, static_argnums=5)  # traced once for each shape
def _fused(x, skip, scale, bias, mask, relu: bool) -> Array:
  def flat(x):
    return wide(x.reshape(-1, x.shape[-1]))

  _, h, w, _ = x.shape
  scale, bias = wide(scale), wide(bias)
  weight = jnp.repeat(mask.astype(scale.dtype), h * w)
  skip = None if skip is None else flat(skip)
  y = norm_pixels.norm(flat(x), skip, scale, bias, weight, relu)
  return y.reshape(x.shape).astype(x.dtype)


@functools.partial(jax.jit, static_argnums=5)  # as _fused
def _separable(y, first, kernel, second, mask, stride: int) -> Array:
  first, second = (norm_depthwise.Affine(*affine) for affine in (first, second))
  z = norm_depthwise.norm_depthwise_norm(
    conv.batch_last(y), first, kernel, second, mask, stride
  )
  return conv.batch_first(z)


@jax.jit  # as _fused
def _pooled(windows, scale, bias, mask) -> Array:
  c, h, w, b = windows[0].shape
  if len(windows) == 1:
    h, w = h // 2, w // 2
  dtype = windows[0].dtype
  windows, scale, bias = jax.tree.map(wide, (windows, scale, bias))
  z = batch_norm.pooled(windows, scale, bias, _pixels(mask, h * w, scale))
  return conv.batch_first(z.reshape(c, h, w, b)).astype(dtype)


def _pixels(mask: Array, times: int, like: Array) -> Array:
  return jnp.tile(mask.astype(like.dtype), times)  # [h w B]
