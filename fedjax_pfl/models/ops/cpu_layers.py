"""Which layer goes to which function on a CPU: `conv_impl='gemm'`.

  conv                           winograd.py: 3x3 and 5x5 of many channels; else
                                 patches_bhwc.py
  pool(relu(conv + bias))        window_conv.py: few channels; winograd.py
  pool(relu(norm(conv)))         pooled_norm.py, after patches_chwb.py; where
                                 tiles are worth it, batch_norm.py after these
  relu(norm(depthwise(relu(norm(x)))))     norm_depthwise.py

common_layers.py has all other layers, as on an accelerator. In half precision
there are no tiles: their numbers are larger than the result's, and rounding
them costs three bits.
"""

import functools

import jax
import jax.numpy as jnp
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import (
  common_layers,
  norm_depthwise,
  patches_bhwc,
  patches_chwb,
  pool,
  pooled_norm,
  window_conv,
  winograd,
)
from fedjax_pfl.models.ops.batch_norm import wide
from fedjax_pfl.models.ops.deferred import (
  Bias,
  Conv,
  Deferred,
  Layer,
  Norm,
  Padding,
  Pool,
  Relu,
  compute,
  without_bias,
)
from fedjax_pfl.models.ops.passes import pad
from fedjax_pfl.models.ops.patches_chwb import turned

ONES = ((1, 1), (1, 1))  # the padding of most 3x3 convolutions


def fuse(layer: Layer) -> Array:
  """Return the result of a layer, with the layers that it is made of."""
  match layer:
    case Conv(x, kernel, stride, padding, False, precision):
      return conv(x, kernel, stride, padding, precision)
    case Relu(Deferred(Pool(Deferred(Conv() | Bias()) as of, size))) | Pool(
      Deferred(Relu(Deferred(Conv() | Bias()) as of)), size
    ):
      return _relu_pool(of, size)
    case Pool(Deferred(Relu(Deferred(Norm() as n))), 2) if y := _patches_of(n):
      return _pooled(y.x, y.kernel, n.scale, n.bias, n.mask, y.precision)
    case Relu(Deferred(Norm() as n)) if first := _separable_norm(n):
      kernel, stride = without_bias(n.of).layer[1:3]
      lines = (first.scale, first.bias), kernel, (n.scale, n.bias)
      return _separable(_before_separable(first), *lines, n.mask, stride)
  return common_layers.fuse(layer)


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
  shapes = x.shape, kernel.shape, edge
  if pooled > 1 and window_conv.is_worth(*shapes, pooled):
    return 'windows'
  is_half = x.dtype.itemsize < 4
  return 'tiles' if winograd.is_worth(*shapes) and not is_half else 'patches'


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
  return patches_bhwc.conv(x, kernel, stride, padding, precision)


def _relu_pool(of: Deferred, size: int) -> Array:
  layer = of.layer
  y, bias = layer if isinstance(layer, Bias) else (of, None)
  match y:
    case Deferred(Conv(x, kernel, 1, padding, False, precision)):
      shift = jnp.zeros(of.shape[-1], x.dtype) if bias is None else bias
      args = x, kernel, shift, size, padding[0][0], precision
      plan = plan_of(x, kernel, 1, padding, size)
      if plan == 'windows':
        return window_conv.conv_relu_pool(*args)
      if plan == 'tiles':
        return winograd.conv(*args)
  z = pool.max_pool(compute(y), size)  # the bias does not change who wins
  return jax.nn.relu(z if bias is None else z + bias)


def _patches_of(norm: Norm) -> Conv | None:
  """Return the convolution by patches whose windows are normalised, if any."""
  match without_bias(norm.of):
    case Deferred(Conv(x, kernel, 1, padding, depthwise=False) as y):
      is_even = x.shape[1] % 2 == x.shape[2] % 2 == 0
      if kernel.shape[:2] == (3, 3) and padding == ONES and is_even:
        return None if plan_of(x, kernel, 1, padding) == 'tiles' else y
  return None


def _separable_norm(norm: Norm) -> Norm | None:
  """Return the BatchNorm before ReLU and a depthwise convolution, if any."""
  match without_bias(norm.of):
    case Deferred(Conv(Deferred(Relu(Deferred(Norm() as n))), depthwise=True)):
      return n if n.mask is norm.mask else None
  return None


def _before_separable(norm: Norm) -> Array:
  """Return images [C, H, W, B], as the first BatchNorm gets them."""
  match without_bias(norm.of):
    case Deferred(Conv(x, kernel, stride, padding, False, precision)):
      return _turned_conv(x, kernel, stride, padding, precision)
    case of:
      return turned(compute(of))


@functools.partial(jax.jit, static_argnums=(2, 3, 4))  # as conv
def _turned_conv(x, kernel, stride, padding, precision) -> Array:
  x, edge = turned(x), padding[0][0]
  if padding != ((edge, edge),) * 2:
    x, edge = pad(x, *padding), 0
  return patches_chwb.conv(x, kernel, stride, edge, precision)


@functools.partial(jax.jit, static_argnums=5)  # as conv
def _separable(y, first, kernel, second, mask, stride: int) -> Array:
  return turned(
    norm_depthwise.norm_depthwise_norm(y, first, kernel, second, mask, stride)
  )


@functools.partial(jax.jit, static_argnums=5)  # as conv
def _pooled(x, kernel, scale, bias, mask, precision) -> Array:
  y = patches_chwb.conv(turned(x), kernel, 1, 1, precision)
  wider, scale, bias = map(wide, (y, scale, bias))
  mask = mask.astype(wider.dtype)
  return turned(pooled_norm.norm_pool(wider, scale, bias, mask)).astype(x.dtype)
