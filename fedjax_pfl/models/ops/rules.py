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
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import common_layers, cpu_layers, dense, pool
from fedjax_pfl.models.ops.batch_norm import MASKED_NORM
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
  Value,
  compute,
  masked_by,
)

Rule = Callable[..., Any]
NHWC = lax.conv_dimension_numbers(
  (1, 1, 1, 1), (1, 1, 1, 1), ('NHWC', 'HWIO', 'NHWC')
)
ONES = ((1, 1), (1, 1))  # the padding of most 3x3 convolutions
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
    if not (_is_depthwise(kernel, groups) and padding == ONES):
      shape = 'x'.join(map(str, kernel.shape))
      return f'a convolution of {groups} groups, kernel {shape}'
    kernel = kernel[:, :, 0]
  layer = Conv(x, kernel, stride, padding, groups > 1, p['precision'])
  back = (*np.argsort((out[0], *out[2:], out[1])),)
  if not is_line and back == (0, 1, 2, 3):
    return layer
  y = cpu_layers.fuse(layer)
  return _transposed(y[:, 0] if is_line else y, back)


def separable(eqn: JaxprEqn, x: Value, kernel: Value) -> Layer | None:
  """Return one half of a separable convolution; XLA has all others.

  On a TPU it has these, too: with shifted sums, a step of MobileNet takes 172
  instead of 54 us an image by the cycles of its compiler.
  """
  p, kernel = eqn.params, compute(kernel)
  if (
    target() == 'tpu'
    or _unusual(p, kernel.dtype)
    or p['dimension_numbers'] != NHWC
  ):
    return None
  if (layer := _depthwise(p, x, kernel)) is not None:
    return layer
  how = kernel.shape[:2], p['window_strides'], p['feature_group_count']
  if how != ((1, 1), (1, 1), 1) or any(sum(p['padding'], ())):
    return None
  return Conv(x, kernel, 1, p['padding'], False, p['precision'])


def product(eqn: JaxprEqn, x: Value, kernel: Value) -> Array | None:
  """Return the product of a dense layer with a large kernel."""
  p = eqn.params
  x, kernel = compute(x), compute(kernel)
  if (
    p['dimension_numbers'] != (((1,), (0,)), ((), ()))
    or (x.ndim, kernel.ndim) != (2, 2)
    or {x.dtype, kernel.dtype, p['preferred_element_type'] or x.dtype}
    != {x.dtype}
    or not dense.is_worth(x, kernel)
  ):
    return None
  return dense.dense(x, kernel, p['precision'])


def add(eqn: JaxprEqn, a: Value, b: Value) -> Layer | None:
  """Return images and their bias, or a normalisation and its skip."""
  for x, y in ((a, b), (b, a)):
    is_conv = isinstance(x, Deferred) and isinstance(x.layer, Conv)
    is_image = isinstance(x, jax.Array) and x.ndim == 4 and x.shape[0] > 1
    if (is_conv or is_image) and _is_bias(y, x.shape):
      return Bias(x, y.reshape(-1))
    match x:
      case Deferred(Norm(mask=mask)) if masked_by(y) is mask:
        return Add(x, y) if x.shape == y.shape else None
  return None


def relu(eqn: JaxprEqn, *inputs: Value) -> Layer | None:
  """Return a deferred ReLU: jax has it as a function with a derivative."""
  return Relu(*inputs) if _origin(eqn) == _origin_of_relu() else None


def norm(eqn: JaxprEqn, x: Value, *rest: Value) -> Layer | None:
  """Return our BatchNorm, of one batch of images.

  Its derivatives have its name, too; mapped, it has axes of more.
  """
  if eqn.params['name'] != MASKED_NORM:
    return None
  shapes = [var.aval.shape for var in (*eqn.invars, *eqn.outvars)]
  if [*map(len, shapes)] != [4, 1, 1, 1, 4] or shapes[0] != shapes[-1]:
    return None
  return Norm(x, *map(compute, rest))


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
  is_plain = window == p['window_strides'] and not any(sum(p['padding'], ()))
  is_square = window == (1, window[1], window[1], 1)
  if is_plain and is_square and _is_dense(p) and window[1] <= pool.LARGEST:
    return Pool(x, window[1])
  return None


def sum_window(eqn: JaxprEqn, x: Value) -> Array | str:
  """Return the sums of an average pooling."""
  return _by_slices(eqn, compute(x), jnp.add, 0)


class Way(NamedTuple):
  """How layers are computed: the setting `conv_impl`."""

  rules: dict[str, Rule]  # by the name of the primitive
  fuse: Fuse


POINTWISE = {'custom_jvp_call': relu, 'reduce_window_max': side_by_side}
FUSED = POINTWISE | {'conv_general_dilated': separable, 'add': add, 'jit': norm}
GEMM = FUSED | {
  'conv_general_dilated': convolution,
  'dot_general': product,
  'reduce_window_max': max_window,
  'reduce_window_sum': sum_window,
}
WAYS = {
  'gemm': Way(GEMM, cpu_layers.fuse),
  'fused': Way(FUSED, common_layers.fuse),
  'lax': Way(POINTWISE, common_layers.fuse),
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
  kernel, padding = compute(kernel), p['padding']
  is_plain = p['dimension_numbers'] == NHWC and padding == ONES
  if not (is_plain and _is_depthwise(kernel, p['feature_group_count'])):
    return None
  stride, precision = p['window_strides'][0], p['precision']
  return Conv(x, kernel[:, :, 0], stride, padding, True, precision)


def _unusual(p: dict, dtype) -> str | None:
  """Return what no function of this folder computes, if there is any."""
  strides = p['window_strides']
  words = {
    'whole numbers': not jnp.issubdtype(dtype, jnp.inexact),
    'batch groups': p['batch_group_count'] != 1,
    'a dilated kernel': {*p['rhs_dilation']} != {1},
    'a dilated image': {*p['lhs_dilation']} != {1},
    f'{len(strides)} spatial axes': len(strides) not in (1, 2),
    f'strides {strides}': len({*strides}) > 1,
    'a result of another dtype': p['preferred_element_type']
    not in (None, dtype),
    'negative padding': min(sum(p['padding'], ()), default=0) < 0,
  }
  found = [word for word, is_so in words.items() if is_so]
  return f'a convolution with {found[0]}' if found else None


def _transposed(x: Array, order: tuple[int, ...]) -> Array:
  return x if order == (*range(x.ndim),) else x.transpose(order)


def _is_depthwise(kernel: Array, groups: int) -> bool:
  return groups > 1 and kernel.shape == (3, 3, 1, groups)


def _is_bias(value: Value, shape: tuple[int, ...]) -> bool:
  """Return whether a vector [C] is added to images of this shape."""
  is_row = getattr(value, 'shape', ()) == (1, 1, 1, shape[-1])
  return is_row and not isinstance(value, Deferred)


def _lowest(dtype) -> float | int | bool:
  if jnp.issubdtype(dtype, jnp.integer):
    return jnp.iinfo(dtype).min
  return False if jnp.issubdtype(dtype, jnp.bool_) else -jnp.inf


def _is_dense(p: dict) -> bool:
  return {*p['base_dilation'], *p['window_dilation']} == {1}


def _by_slices(eqn, x: Array, combine, fill) -> Array | str:
  p = eqn.params
  window = p['window_dimensions']
  if not _is_dense(p) or sum(window) - len(window) > MOST_SLICES:
    shape = 'x'.join(map(str, window))
    return f'a pooling with dilation or a window of {shape}'
  if any(sum(p['padding'], ())):
    edges = [(low, high, 0) for low, high in p['padding']]
    x = lax.pad(x, jnp.asarray(fill, x.dtype), edges)
  return pool.by_slices(x, window, p['window_strides'], combine)
