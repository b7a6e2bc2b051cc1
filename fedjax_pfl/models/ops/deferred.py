"""Layers that are not computed yet, and how they are computed together.

A convolution is a `Deferred`; a bias, a ReLU, a pooling that follow wrap it in
another one. Whoever needs numbers calls `compute`, which takes the largest
group of layers that one of the fused functions of this folder knows:

  pool(relu(conv + bias))        relu_pool.py
  pool(relu(norm(conv)))         batch_norm.py, with Winograd's tiles as windows
  relu(norm(x) + skip)           batch_norm.py

Images are [B, H, W, C], kernels [k, k, in, out]; this is the way of a CPU.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import batch_norm, conv, pool, relu_pool


class Deferred:
  """A layer whose result has not been computed, or only once."""

  __match_args__ = ('layer',)

  def __init__(self, layer: 'Layer', shape: tuple[int, ...]):
    self.layer = layer
    self.shape = shape

  @functools.cached_property
  def array(self) -> Array:
    return _compute(self.layer)


Value = Array | Deferred


class Conv(NamedTuple):
  """A convolution; a depthwise one has a kernel [3, 3, C]."""

  x: Array
  kernel: Array
  stride: int
  padding: conv.Padding
  depthwise: bool
  precision: PrecisionLike


class Bias(NamedTuple):
  """of + bias, with one number a channel."""

  of: Deferred
  bias: Array


class Norm(NamedTuple):
  """BatchNorm with the statistics of the rows of a mask [B]."""

  of: Value
  scale: Array
  bias: Array
  mask: Array


class Add(NamedTuple):
  """norm + skip, where the skip is zero outside of the mask, too."""

  norm: Deferred
  skip: Value


class Relu(NamedTuple):
  """max(of, 0)"""

  of: Value


class Pool(NamedTuple):
  """The maximum of size x size pixels, side by side."""

  of: Value
  size: int


class Row(NamedTuple):
  """A vector [C], the same for every pixel."""

  vector: Array
  shape: tuple[int, ...]


Layer = Conv | Bias | Norm | Add | Relu | Pool | Row


def compute(value: Value) -> Array:
  """Return the numbers of a layer; an array stays as it is."""
  return value.array if isinstance(value, Deferred) else value


def masked_by(value: Value) -> Array | None:
  """Return the mask outside of which the rows are known to be zero."""
  match value:
    case Deferred(Norm(mask=mask)) | Deferred(Add(Deferred(Norm(mask=mask)))):
      return mask
    case Deferred(Relu(of)) | Deferred(Pool(of)):
      return masked_by(of)
  return None


def _compute(layer: Layer) -> Array:
  match layer:
    case Conv(x, kernel, stride, _, depthwise=True):
      return conv.depthwise(x, kernel, stride)
    case Conv(x, kernel, stride, padding, _, precision):
      return conv.conv(x, kernel, stride, padding, precision)
    case Bias(of, bias):
      return compute(of) + bias
    case Relu(Deferred(Pool(Deferred(Conv() | Bias()) as of, size))):
      return _relu_pool(of, size)
    case Pool(Deferred(Relu(Deferred(Conv() | Bias()) as of)), size):
      return _relu_pool(of, size)
    case Pool(Deferred(Relu(Deferred(Norm() as n))), 2) if _has_windows(n):
      y = _without_bias(n.of).layer
      windows = conv.windows(y.x, y.kernel, y.precision)
      return _pooled(windows, n.scale, n.bias, n.mask)
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
  if isinstance(layer, Bias):
    y, bias = compute(layer.of), layer.bias
  else:
    y = compute(of)
    bias = jnp.zeros(y.shape[-1], y.dtype)
  return conv.batch_first(relu_pool.relu_pool(conv.batch_last(y), bias, size))


def _without_bias(value: Value) -> Value:
  """Return what is normalised, without a bias, which the mean removes.

  Its gradient is exactly zero.
  """
  match value:
    case Deferred(Bias(of)):
      return of
  return value


def _has_windows(norm: Norm) -> bool:
  match _without_bias(norm.of):
    case Deferred(Conv(x, kernel, 1, ((1, 1), (1, 1)), depthwise=False)):
      even = x.shape[1] % 2 == x.shape[2] % 2 == 0
      return kernel.shape[:2] == (3, 3) and even
  return False


def _normalise(norm: Norm, skip: Value | None, relu: bool) -> Array:
  x = compute(_without_bias(norm.of))
  skip = None if skip is None else compute(skip)
  return _fused(x, skip, norm.scale, norm.bias, norm.mask, relu)


@functools.partial(jax.jit, static_argnums=5)  # traced once for each shape
def _fused(x, skip, scale, bias, mask, relu: bool) -> Array:
  def flat(x):
    return batch_norm.wide(conv.batch_last(x).reshape(x.shape[-1], -1))

  b, h, w, c = x.shape
  dtype, scale, bias = x.dtype, batch_norm.wide(scale), batch_norm.wide(bias)
  weight = _pixels(mask, h * w, scale)
  skip = None if skip is None else flat(skip)
  y = batch_norm.norm(flat(x), skip, scale, bias, weight, relu)
  return conv.batch_first(y.reshape(c, h, w, b)).astype(dtype)


@jax.jit  # as _fused
def _pooled(windows, scale, bias, mask) -> Array:
  c, h, w, b = windows[0].shape
  if len(windows) == 1:
    h, w = h // 2, w // 2
  dtype = windows[0].dtype
  windows, scale, bias = jax.tree.map(batch_norm.wide, (windows, scale, bias))
  z = batch_norm.pooled(windows, scale, bias, _pixels(mask, h * w, scale))
  return conv.batch_first(z.reshape(c, h, w, b)).astype(dtype)


def _pixels(mask: Array, times: int, like: Array) -> Array:
  return jnp.tile(mask.astype(like.dtype), times)  # [h w B]
