"""Deferred layers, and which function computes which group of them.

A convolution is a `Layer`; a bias, a ReLU or a pooling of it is another
`Layer`, made of the first. `compute` takes the function of the largest group of
layers that has one: `anywhere`, for 'fused' and 'lax', with few passes over
memory; `on_cpu`, for 'gemm', with matrix products before these. Half precision
has no tiles, whose numbers are larger: rounding them costs three bits.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.target import target
from fedjax_pfl.models.ops import (
  batch_norm,
  norm_depthwise,
  patches_chwb,
  pool,
  pooled_norm,
  separable,
  window_conv,
  winograd,
)
from fedjax_pfl.models.ops.batch_norm import Running, wide
from fedjax_pfl.models.ops.blocks import block_size, in_blocks
from fedjax_pfl.models.ops.passes import pad, taps_of
from fedjax_pfl.models.ops.patches_chwb import turned

ONES = ((1, 1), (1, 1))  # the padding of most 3x3 convolutions
Padding = tuple[tuple[int, int], tuple[int, int]]
record = dataclasses.dataclass(eq=False)


class Layer:
  """A layer whose result [B, H, W, C] has not been computed, or only once."""

  def placed(self, shape: tuple[int, ...], fuse: 'Fuse') -> 'Layer':
    """Return the layer, with the shape of its result and how to compute it."""
    self.shape, self._fuse = shape, fuse
    return self

  @functools.cached_property
  def array(self) -> Array:
    return self._fuse(self)


Value = Array | Layer
Fuse = Callable[[Layer], Array]


@record
class Conv(Layer):
  """A convolution; a depthwise one has a kernel [3, 3, C]."""

  x: Value
  kernel: Array
  stride: int
  padding: Padding
  depthwise: bool
  precision: PrecisionLike


@record
class Bias(Layer):
  """of + bias, with one number a channel."""

  of: Value
  bias: Array


@record
class Norm(Layer):
  """BatchNorm with the statistics of the rows of a mask [B]."""

  of: Value
  scale: Array
  bias: Array
  mask: Array
  running: Running | None

  @property
  def arguments(self) -> tuple[Array | Running | None, ...]:
    return compute(self.of), self.scale, self.bias, self.mask, self.running


@record
class Add(Layer):
  """norm + skip, where the skip is zero outside of the mask, too."""

  norm: Norm
  skip: Value


@record
class Relu(Layer):
  """max(of, 0)"""

  of: Value


@record
class Pool(Layer):
  """The maximum of size x size pixels, side by side."""

  of: Value
  size: int


def compute(value: Value) -> Array:
  """Return the numbers of a layer; an array stays as it is."""
  return value.array if isinstance(value, Layer) else value


def masked_by(value: Value) -> Array | None:
  """Return the mask outside of which the rows are known to be zero."""
  match value:
    case Norm(mask=mask) | Add(Norm(mask=mask)):
      return mask
    case Relu(of) | Pool(of):
      return masked_by(of)
  return None


# ---- Which group goes to which function: `conv_impl`


def anywhere(layer: Layer) -> Array:
  """Return the result of a layer, with the layers that it is made of."""
  match layer:
    case Conv(Relu(Norm() as n), kernel, stride, depthwise=True):
      return separable.norm_depthwise(*n.arguments, kernel, stride)
    case Conv(x, kernel, stride, depthwise=True):
      return separable.depthwise(compute(x), kernel, stride)
    case Conv(x, kernel, precision=precision):
      return separable.pointwise(compute(x), kernel[0, 0], precision)
    case Pool(Relu(Norm() as n), size):
      return batch_norm.norm_pool(*n.arguments, size)
    case Bias(of, bias):
      return compute(of) + bias
    case Add(n, skip) | Relu(Add(n, skip)):
      skip = compute(skip)
      x, *rest = n.arguments
      return batch_norm.norm(x, skip, *rest, isinstance(layer, Relu))
    case (Norm() as n) | Relu(Norm() as n):
      x, *rest = n.arguments
      return batch_norm.norm(x, None, *rest, isinstance(layer, Relu))
    case Pool(Relu(of), size):
      z = pool.max_pool(compute(of), size)  # before the ReLU: fewer pixels
      return jax.nn.relu(z)
    case Relu(of):
      return jax.nn.relu(compute(of))
    case Pool(of, size):
      return pool.max_pool(compute(of), size)
  raise AssertionError(layer)


def on_cpu(layer: Layer) -> Array:
  """Return the result of a layer by matrix products."""
  match layer:
    case Conv(_, kernel, 1, depthwise=False) if (
      target() == 'gpu' and kernel.shape[:2] == (1, 1)
    ):
      return anywhere(layer)
    case Conv(x, kernel, stride, padding, False, precision):
      return conv(x, kernel, stride, padding, precision)
    case Relu(Pool(Conv() | Bias() as of, size)) | Pool(
      Relu(Conv() | Bias() as of), size
    ):
      return _relu_pool(of, size)
    case Pool(
      Relu(Norm(Conv(x, kernel, 1, padding, False, precision)) as n), 2
    ) if target() == 'cpu' and _are_patches_of_windows(x, kernel, padding):
      affine = n.scale, n.bias
      return _pooled(x, kernel, affine, n.mask, n.running, precision)
    case Relu(
      Norm(Conv(Relu(Norm() as first), kernel, stride, depthwise=True)) as n
    ) if target() == 'cpu' and first.mask is n.mask:
      return _separable(
        _before_separable(first),
        (first.scale, first.bias),
        kernel,
        (n.scale, n.bias),
        n.mask,
        first.running and (first.running, n.running),
        stride,
      )
  return anywhere(layer)


def plan_of(
  x: Array, kernel: Array, stride: int, padding: Padding, pooled: int = 1
) -> str:
  """Return how to convolve: by 'tiles' or 'patches'.

  With a ReLU and a max-pooling of `pooled` pixels a side, 'windows' is a
  function of all three.
  """
  edge = padding[0][0]
  if padding != ((edge, edge),) * 2 or stride > 1:
    return 'patches'
  if pooled > 1 and window_conv.is_worth(x.shape, kernel.shape, edge, pooled):
    return 'windows'
  is_full = x.dtype.itemsize >= 4
  is_worth = is_full and winograd.is_worth(x.shape, kernel.shape, edge)
  return 'tiles' if is_worth else 'patches'


# Jitted, so that layers of one shape are traced and lowered once; XLA inlines
# the calls.
@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def conv(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike = None,
) -> Array:
  """Convolve x [B, H, W, I] with kernel [k, l, I, O]."""
  if plan_of(x, kernel, stride, padding) == 'tiles':
    return winograd.conv(x, kernel, None, 1, padding[0][0], precision)
  return _by_patches(x, kernel, stride, padding, precision)


def _by_patches(x, kernel, stride: int, padding: Padding, precision) -> Array:
  """Return patches [pixels, k l I] times the kernel: one pixel takes none.

  Those of a block stay in cache, and are taken again for the gradient.
  """
  *size, _, o = kernel.shape
  flat = kernel.reshape(-1, o)

  def convolve(x, flat):
    x = wide(x)  # so that the gradient adds up its taps in at least float32
    x = pad(x, *padding) if any(map(any, padding)) else x
    patches = jnp.concatenate(taps_of(x, size, stride), -1).astype(flat.dtype)
    y = lax.dot(patches.reshape(-1, len(flat)), flat, precision=precision)
    return y.reshape(*patches.shape[:3], o)

  if size == [1, 1]:
    return convolve(x, flat)
  sides = zip(x.shape[1:3], padding, size, strict=True)
  h, w = (-(-(side + sum(edges) - k + 1) // stride) for side, edges, k in sides)
  each = len(flat) * h * w * x.dtype.itemsize
  return in_blocks(convolve, block_size(len(x), each), x, flat)


def _relu_pool(of: Conv | Bias, size: int) -> Array:
  y, bias = (of.of, of.bias) if isinstance(of, Bias) else (of, None)
  match y:
    case Conv(x, kernel, 1, padding, False, precision):
      shift = jnp.zeros(of.shape[-1], x.dtype) if bias is None else bias
      args = x, kernel, shift, size, padding[0][0], precision
      plan = plan_of(x, kernel, 1, padding, size)
      if plan == 'windows':
        return window_conv.conv_relu_pool(*args)
      if plan == 'tiles':
        return winograd.conv(*args)
  z = pool.max_pool(compute(y), size)  # the bias does not change who wins
  return jax.nn.relu(z if bias is None else z + bias)


def _are_patches_of_windows(x: Array, kernel: Array, padding: Padding) -> bool:
  """Return whether patches are better, and 2x2 pixels fill their images."""
  is_even = x.shape[1] % 2 == x.shape[2] % 2 == 0
  is_usual = kernel.shape[:2] == (3, 3) and padding == ONES
  return is_even and is_usual and plan_of(x, kernel, 1, padding) == 'patches'


@functools.partial(jax.jit, static_argnums=5)  # as conv
def _pooled(x, kernel, affine, mask, running, precision) -> Array:
  y = patches_chwb.conv(turned(x), kernel, 1, 1, precision)
  wider, scale, bias = map(wide, (y, *affine))
  mask = mask.astype(wider.dtype)
  z = pooled_norm.norm_pool(wider, scale, bias, mask, running)
  return turned(z).astype(x.dtype)


def _before_separable(norm: Norm) -> Array:
  """Return images [C, H, W, B], as the first BatchNorm gets them."""
  match norm.of:
    case Conv(x, kernel, stride, padding, False, precision):
      return _turned_conv(x, kernel, stride, padding, precision)
    case of:
      return turned(compute(of))


@functools.partial(jax.jit, static_argnums=(2, 3, 4))  # as conv
def _turned_conv(x, kernel, stride, padding, precision) -> Array:
  x, edge = turned(x), padding[0][0]
  if padding != ((edge, edge),) * 2:
    x, edge = pad(x, *padding), 0
  return patches_chwb.conv(x, kernel, stride, edge, precision)


@functools.partial(jax.jit, static_argnums=6)  # as conv
def _separable(y, first, kernel, second, mask, running, stride: int) -> Array:
  z = norm_depthwise.norm_depthwise_norm(
    y, first, kernel, second, mask, running, stride
  )
  return turned(z)
