"""What replaces an equation of a traced function: one rule a primitive.

A rule gets the equation and its inputs, of which some may be deferred. It
returns a `Layer`, which is deferred; an array; or None: the equation stays.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import JaxprEqn

from fedjax_pfl.core.target import target
from fedjax_pfl.models.ops import dense, fuse, grouped, pool
from fedjax_pfl.models.ops.batch_norm import MASKED_NORM
from fedjax_pfl.models.ops.fuse import Layer, Value, compute

Rule = Callable[..., Any]
NHWC = lax.conv_dimension_numbers(
  (1, 1, 1, 1), (1, 1, 1, 1), ('NHWC', 'HWIO', 'NHWC')
)
# Of a BatchNorm's arguments and result, without and with running statistics.
NORM_RANKS = [4, 1, 1, 1, 4], [4, 1, 1, 1, 1, 1, 4]
MOST_SLICES = 64  # of a pooling: a slice for each line of its window


def convolution(eqn: JaxprEqn, x: Value, kernel: Value) -> Array | Layer | None:
  """Return a convolution of one or two spatial axes by matrix products."""
  p, groups = eqn.params, eqn.params['feature_group_count']
  if not _is_usual(p, eqn.invars[0].aval.dtype):
    return None
  lhs, rhs, out = p['dimension_numbers']
  x = compute(x) if groups == 1 else x
  x = _transposed(x, (lhs[0], *lhs[2:], lhs[1]))
  kernel = _transposed(compute(kernel), (*rhs[2:], rhs[1], rhs[0]))
  padding, stride = p['padding'], p['window_strides'][0]
  if groups > 1:
    if kernel.shape != (3, 3, 1, groups) or padding != fuse.ONES:
      return None
    kernel = kernel[:, :, 0]
  is_line = len(padding) == 1
  if is_line:  # an image of one row
    x, kernel, padding = x[:, None], kernel[None], ((0, 0), *padding)
  layer = fuse.Conv(x, kernel, stride, padding, groups > 1, p['precision'])
  back = (*np.argsort((out[0], *out[2:], out[1])),)
  if not is_line and back == (0, 1, 2, 3):
    return layer
  y = fuse.on_cpu(layer)
  return _transposed(y[:, 0] if is_line else y, back)


def separable(eqn: JaxprEqn, x: Value, kernel: Value) -> Array | Layer | None:
  """Return one half of a separable convolution; XLA has all others.

  On a TPU it has these, too: with shifted sums, a step of MobileNet takes 172
  instead of 54 us an image by the cycles of its compiler. On a GPU the others
  have gradients that XLA recognises.
  """
  p, sides = eqn.params, eqn.invars[1].aval.shape[:2]
  is_pixel = sides == p['window_strides'] == (1, 1) and not _is_padded(p)
  is_half = is_pixel or p['feature_group_count'] > 1
  if target() == 'tpu' or p['dimension_numbers'] != NHWC:
    return None
  if is_half:
    return convolution(eqn, x, kernel)
  is_one = p['feature_group_count'] == 1
  if target() == 'gpu' and is_one and _is_usual(p, eqn.invars[0].aval.dtype):
    spec = p['window_strides'][0], p['padding'], p['precision']
    return grouped.conv(compute(x), compute(kernel), spec)
  return None


def product(eqn: JaxprEqn, x: Value, kernel: Value) -> Array | None:
  """Return the product of a dense layer with a large kernel."""
  p = eqn.params
  x, kernel = compute(x), compute(kernel)
  dtypes = {x.dtype, kernel.dtype, p['preferred_element_type'] or x.dtype}
  is_plain = p['dimension_numbers'] == (((1,), (0,)), ((), ()))
  is_dense = is_plain and x.ndim == kernel.ndim == 2 and len(dtypes) == 1
  if is_dense and dense.is_worth(x, kernel):
    return dense.dense(x, kernel, p['precision'])
  return None


def add(eqn: JaxprEqn, a: Value, b: Value) -> Layer | None:
  """Return images and their bias, or a normalisation and its skip."""
  for x, y in ((a, b), (b, a)):
    is_image = isinstance(x, jax.Array) and x.ndim == 4 and x.shape[0] > 1
    if is_image or isinstance(x, fuse.Conv):
      row = (1, 1, 1, x.shape[-1])
      if getattr(y, 'shape', ()) == row and not isinstance(y, Layer):
        return fuse.Bias(x, y.reshape(-1))
    if isinstance(x, fuse.Norm) and fuse.masked_by(y) is x.mask:
      return fuse.Add(x, y) if x.shape == y.shape else None
  return None


def relu(eqn: JaxprEqn, *inputs: Value) -> Layer | None:
  """Return a deferred ReLU: jax has it as a function with a derivative."""
  return fuse.Relu(*inputs) if _origin(eqn) == _origin_of_relu() else None


def norm(eqn: JaxprEqn, *inputs: Value) -> Layer | None:
  """Return our BatchNorm, of one batch of images.

  Its derivatives have its name, too; mapped, it has axes of more. A bias before
  it goes: the mean removes it, so that its gradient is exactly zero.
  """
  if eqn.params['name'] != MASKED_NORM:
    return None
  shapes = [var.aval.shape for var in (*eqn.invars, *eqn.outvars)]
  ranks = [*map(len, shapes)]
  if ranks not in NORM_RANKS or shapes[0] != shapes[-1]:
    return None
  x, *rest = inputs
  scale, bias, mask, *running = map(compute, rest)
  if isinstance(x, fuse.Bias):
    if running:
      running[0] -= lax.stop_gradient(x.bias)
    x = x.of
  return fuse.Norm(x, scale, bias, mask, tuple(running) or None)


def side_by_side(eqn: JaxprEqn, x: Value) -> Layer | None:
  """Return a deferred max-pooling of k x k pixels, where it is one."""
  p, window = eqn.params, eqn.params['window_dimensions']
  is_plain = window == p['window_strides'] and not _is_padded(p)
  is_square = window == (1, window[1], window[1], 1)
  if is_plain and is_square and _is_dense(p) and window[1] <= pool.LARGEST:
    return fuse.Pool(x, window[1])
  return None


def max_window(eqn: JaxprEqn, x: Value) -> Array | Layer | None:
  """Return a max-pooling; one of k x k pixels side by side is deferred."""
  if layer := side_by_side(eqn, x):
    return layer
  p, x = eqn.params, compute(x)
  window = p['window_dimensions']
  is_float = jnp.issubdtype(x.dtype, jnp.floating)  # which has an infinity
  slices = sum(window) - len(window)
  if not (is_float and _is_dense(p)) or slices > MOST_SLICES:
    return None
  if _is_padded(p):
    edges = [(low, high, 0) for low, high in p['padding']]
    x = lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), edges)
  return pool.largest_of_windows(x, window, p['window_strides'])


class Way(NamedTuple):
  """How layers are computed: the setting `conv_impl`."""

  rules: dict[str, Rule]  # by the name of the primitive
  fuse: fuse.Fuse


POINTWISE = {'custom_jvp_call': relu, 'reduce_window_max': side_by_side}
FUSED = POINTWISE | {'conv_general_dilated': separable, 'add': add, 'jit': norm}
GEMM = FUSED | {
  'conv_general_dilated': convolution,
  'dot_general': product,
  'reduce_window_max': max_window,
}
WAYS = {
  'gemm': Way(GEMM, fuse.on_cpu),
  'fused': Way(FUSED, fuse.anywhere),
  'lax': Way(POINTWISE, fuse.anywhere),
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


def _is_usual(p: dict, dtype) -> bool:
  """Return whether the functions of this folder compute such a convolution."""
  return (
    jnp.issubdtype(dtype, jnp.inexact)
    and p['preferred_element_type'] in (None, dtype)
    and len(p['window_strides']) in (1, 2)
    and len({*p['window_strides']}) == 1
    and {p['batch_group_count'], *p['lhs_dilation'], *p['rhs_dilation']} == {1}
    and min(sum(p['padding'], ())) >= 0
  )


def _transposed(x: Value, order: tuple[int, ...]) -> Value:
  return x if order == (*range(len(order)),) else compute(x).transpose(order)


def _is_padded(p: dict) -> bool:
  return any(sum(p['padding'], ()))


def _is_dense(p: dict) -> bool:
  return {*p['base_dilation'], *p['window_dilation']} == {1}
