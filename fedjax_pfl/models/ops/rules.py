"""What replaces an equation of a traced function: one rule a primitive.

A rule gets the equation and its inputs, of which some may be deferred layers.
It returns a `Layer`, which is deferred, or the result as an array; a `str` that
says why the equation stays as it is; or None where it is none of its business.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import common_layers, cpu_layers, dense, pool
from fedjax_pfl.models.ops.deferred import (
  Add,
  Bias,
  Conv,
  Deferred,
  Fuse,
  Layer,
  Norm,
  Pool,
  Relu,
  Row,
  Value,
  compute,
  masked_by,
)

Rule = Callable[..., Any]
NHWC = lax.conv_dimension_numbers(
  (1, 1, 1, 1), (1, 1, 1, 1), ('NHWC', 'HWIO', 'NHWC')
)
MOST_SLICES = 64  # of a pooling: a slice for each line of its window


def convolution(eqn: JaxprEqn, x: Value, kernel: Value) -> Array | Layer | str:
  """Return a convolution of one or two spatial axes by matrix products."""
  p = eqn.params
  if reason := _unusual(p, eqn.invars[0].aval.dtype):
    return reason
  if (layer := _depthwise(p, x, kernel)) is not None:
    return layer
  lhs, rhs, out = p['dimension_numbers']
  x = _transposed(compute(x), (lhs[0], *lhs[2:], lhs[1]))
  kernel = _transposed(compute(kernel), (*rhs[2:], rhs[1], rhs[0]))
  padding, stride = p['padding'], p['window_strides'][0]
  is_line = len(padding) == 1
  if is_line:  # an image of one row
    x, kernel, padding = x[:, None], kernel[None], ((0, 0), *padding)
  groups = p['feature_group_count']
  if groups > 1:
    if not (_is_depthwise(kernel, groups) and padding == ((1, 1), (1, 1))):
      shape = 'x'.join(map(str, kernel.shape))
      return f'a convolution of {groups} groups, kernel {shape}'
    kernel = kernel[:, :, 0]
  layer = Conv(x, kernel, stride, padding, groups > 1, p['precision'])
  back = _inverse((out[0], *out[2:], out[1]))
  if not is_line and back == (0, 1, 2, 3):
    return layer
  y = cpu_layers.fuse(layer)
  return _transposed(y[:, 0] if is_line else y, back)


def separable(eqn: JaxprEqn, x: Value, kernel: Value) -> Layer | None:
  """Return one half of a separable convolution; XLA has all others.

  On a TPU it has these, too: with shifted sums, a step of MobileNet takes 172
  instead of 54 us an image by the cycles of its compiler.
  """
  if target() == 'tpu':
    return None
  p = eqn.params
  kernel, padding, groups = (
    compute(kernel), p['padding'], p['feature_group_count']
  )  # fmt: skip
  if _unusual(p, kernel.dtype) or p['dimension_numbers'] != NHWC:
    return None
  stride, precision = p['window_strides'][0], p['precision']
  if (layer := _depthwise(p, x, kernel)) is not None:
    return layer
  if (kernel.shape[:2], stride, groups) != ((1, 1), 1, 1):
    return None
  if any(sum(padding, ())):
    return None
  return Conv(x, kernel, stride, padding, False, precision)


def product(eqn: JaxprEqn, x: Value, kernel: Value) -> Array | None:
  """Return the product of a dense layer with a large kernel."""
  p = eqn.params
  x, kernel = compute(x), compute(kernel)
  is_plain = p['dimension_numbers'] == (((1,), (0,)), ((), ()))
  if not (is_plain and x.ndim == 2 and x.dtype == kernel.dtype):
    return None
  if p['preferred_element_type'] not in (None, x.dtype):
    return None
  if kernel.ndim != 2 or not dense.is_worth(x, kernel):
    return None
  return dense.dense(x, kernel, p['precision'])


def add(eqn: JaxprEqn, a: Value, b: Value) -> Layer | None:
  """Return images and their bias, or a normalisation and its skip."""
  for x, y in ((a, b), (b, a)):
    is_conv = isinstance(x, Deferred) and isinstance(x.layer, Conv)
    is_image = isinstance(x, jax.Array) and x.ndim == 4 and x.shape[0] > 1
    vector = _channels(y, x.shape) if is_conv or is_image else None
    if vector is not None:
      return Bias(x, vector)
    match x:
      case Deferred(Norm(mask=mask)) if masked_by(y) is mask:
        return Add(x, y) if x.shape == y.shape else None
  return None


def relu(eqn: JaxprEqn, *inputs: Value) -> Layer | None:
  """Return a deferred ReLU: jax has it as a function with a derivative."""
  return Relu(*inputs) if _origin(eqn) == _origin_of_relu() else None


def broadcast(eqn: JaxprEqn, x: Value, *dynamic) -> Layer | None:
  """Return a bias that is written as an image: haiku does."""
  p = eqn.params
  shape = p['shape']
  is_row = p['broadcast_dimensions'] == (len(shape) - 1,)
  if len(shape) != 4 or not is_row or jnp.ndim(compute(x)) != 1:
    return None
  return Row(compute(x), shape)


def norm(x: Value, scale: Value, bias: Value, mask: Value) -> Layer:
  """Return BatchNorm."""
  return Norm(x, compute(scale), compute(bias), compute(mask))


def max_window(eqn: JaxprEqn, x: Value) -> Array | Layer | str:
  """Return a max-pooling; one of k x k pixels side by side is deferred."""
  if (layer := side_by_side(eqn, x)) is not None:
    return layer
  x = compute(x)
  return _by_slices(eqn, x, pool.larger, _lowest(x.dtype))


def side_by_side(eqn: JaxprEqn, x: Value) -> Layer | None:
  """Return a deferred max-pooling of k x k pixels, where it is one."""
  p = eqn.params
  window = p['window_dimensions']
  if not _is_plain(p) or window != (1, window[1], window[1], 1):
    return None
  if window[1] > pool.LARGEST:
    return None
  return Pool(x, window[1])


def sum_window(eqn: JaxprEqn, x: Value) -> Array | str:
  """Return the sums of an average pooling."""
  return _by_slices(eqn, compute(x), jnp.add, 0)


class Way(NamedTuple):
  """How layers are computed: the setting `conv_impl`."""

  rules: dict[str, Rule]  # by the name of the primitive
  fuse: Fuse
  has_norm: bool  # whether BatchNorm has a function of its own


WAYS = {
  'gemm': Way(
    {
      'conv_general_dilated': convolution,
      'dot_general': product,
      'add': add,
      'custom_jvp_call': relu,
      'broadcast_in_dim': broadcast,
      'reduce_window_max': max_window,
      'reduce_window_sum': sum_window,
    },
    cpu_layers.fuse,
    has_norm=True,
  ),
  'fused': Way(
    {
      'conv_general_dilated': separable,
      'add': add,
      'custom_jvp_call': relu,
      'broadcast_in_dim': broadcast,
      'reduce_window_max': side_by_side,
    },
    common_layers.fuse,
    has_norm=True,
  ),
  'lax': Way(
    {'custom_jvp_call': relu, 'reduce_window_max': side_by_side},
    common_layers.fuse,
    has_norm=False,
  ),
}


def _origin(eqn: JaxprEqn) -> tuple[str | None, ...]:
  """Return where a function with a derivative is written, and its derivative.

  The name is not enough: a user's clipped ReLU may have it, and a derivative
  of the user's own may belong to jax's ReLU.
  """
  body, slope = eqn.params['call_jaxpr'], eqn.params.get('jvp_jaxpr_fun')
  written = body.jaxpr.debug_info, getattr(slope, 'debug_info', None)
  return tuple(getattr(info, 'func_src_info', None) for info in written)


@functools.cache
def _origin_of_relu() -> tuple[str | None, ...]:
  return _origin(jax.make_jaxpr(jax.nn.relu)(0.0).eqns[0])


def _depthwise(p: dict, x: Value, kernel: Value) -> Conv | None:
  """Return a depthwise convolution of what may still be deferred."""
  if p['dimension_numbers'] != NHWC or p['padding'] != ((1, 1), (1, 1)):
    return None
  kernel, groups = compute(kernel), p['feature_group_count']
  if not _is_depthwise(kernel, groups):
    return None
  stride, precision = p['window_strides'][0], p['precision']
  return Conv(x, kernel[:, :, 0], stride, p['padding'], True, precision)


def _unusual(p: dict, dtype) -> str | None:
  """Return what no function of this folder computes, if there is any."""
  words = {
    'whole numbers': not jnp.issubdtype(dtype, jnp.inexact),
    'batch groups': p['batch_group_count'] != 1,
    'a dilated kernel': set(p['rhs_dilation']) != {1},
    'a dilated image': set(p['lhs_dilation']) != {1},
    f'{len(p["window_strides"])} spatial axes': (
      len(p['window_strides']) not in (1, 2)
    ),
    f'strides {p["window_strides"]}': len(set(p['window_strides'])) > 1,
    'a result of another dtype': (
      p['preferred_element_type'] not in (None, dtype)
    ),
    'negative padding': min(sum(p['padding'], ()), default=0) < 0,
  }
  found = [word for word, is_so in words.items() if is_so]
  return f'a convolution with {found[0]}' if found else None


def _transposed(x: Array, order: tuple[int, ...]) -> Array:
  return x if order == (*range(x.ndim),) else x.transpose(order)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
  return tuple(order.index(axis) for axis in range(len(order)))


def _is_depthwise(kernel: Array, groups: int) -> bool:
  return groups > 1 and kernel.shape == (3, 3, 1, groups)


def _channels(value: Value, shape: tuple[int, ...]) -> Array | None:
  """Return the vector [C] that is added to images of this shape, if it is."""
  if getattr(value, 'shape', ()) not in (shape, (1, 1, 1, shape[-1])):
    return None
  match value:
    case Deferred(Row(vector)):
      return vector
    case Deferred():
      return None
  return value.reshape(-1) if value.size == shape[-1] else None


def _lowest(dtype) -> float | int | bool:
  if jnp.issubdtype(dtype, jnp.integer):
    return jnp.iinfo(dtype).min
  return False if jnp.issubdtype(dtype, jnp.bool_) else -jnp.inf


def _is_plain(p: dict) -> bool:
  """Return whether windows lie side by side, from the first pixel on."""
  return (
    p['window_dimensions'] == p['window_strides']
    and not any(sum(p['padding'], ()))
    and _is_dense(p)
  )


def _is_dense(p: dict) -> bool:
  return {*p['base_dilation'], *p['window_dilation']} == {1}


def _by_slices(eqn, x: Array, combine, fill) -> Array | str:
  p = eqn.params
  window = p['window_dimensions']
  if not _is_dense(p) or sum(window) - len(window) > MOST_SLICES:
    shape = 'x'.join(map(str, window))
    return f'a pooling with dilation or a window of {shape}'
  edges = [(low, high, 0) for low, high in p['padding']]
  if any(sum(p['padding'], ())):
    x = lax.pad(x, jnp.asarray(fill, x.dtype), edges)
  return pool.by_slices(x, window, p['window_strides'], combine)
