"""XLA's convolutions, with gradients of kernels that it recognises on a GPU.

Of clients side by side a convolution becomes a grouped one. XLA does not match
the gradient of its kernel to cuDNN's: it computes a convolution whose window is
the whole image, after two transposes. Grouped first and then differentiated, it
is cuDNN's backward filter. The three functions are derivatives of one number,

  T(x, k, dy) = sum of conv(x, k) dy:   y = T_dy,  dx = T_x,  dk = T_k

so that they are each other's gradients, and second derivatives are right.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.passes import by_hand

Padding = tuple[tuple[int, int], tuple[int, int]]
How = tuple[int, Padding, PrecisionLike]


@by_hand(2)
def conv(x: Array, kernel: Array, how: How):
  """Convolve x [B, H, W, I] with a kernel [k, l, I, O]."""
  return _conv(how, x, kernel), (x, kernel)


@conv.gradient
def _of_conv(how, saved, dy):
  x, kernel = saved
  return _to_input(how, x, kernel, dy), kernel_gradient(
    x, dy, how, kernel.shape
  )


@by_hand(2, 3)
def kernel_gradient(x: Array, dy: Array, how: How, shape: tuple[int, ...]):
  """Return dk, of this shape."""
  return _of_clients(how, shape)(x, dy), (x, dy)


@kernel_gradient.gradient
def _of_kernel_gradient(how, shape, saved, g):
  x, dy = saved
  return _to_input(how, x, g, dy), conv(x, g, how)


def _conv(how, x, kernel, groups=1):
  stride, padding, precision = how
  return lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    feature_group_count=groups,
    precision=precision,
  )


def _to_input(how, x, kernel, dy):
  return jax.linear_transpose(lambda x: _conv(how, x, kernel), x)(dy)[0]


def _to_kernel(how, shape, groups, x, dy):
  like = jax.ShapeDtypeStruct(shape, x.dtype)
  of_kernel = functools.partial(_conv, how, x, groups=groups)
  return jax.linear_transpose(of_kernel, like)(dy)[0]


@functools.cache
def _of_clients(how, shape):
  own = custom_vmap(functools.partial(_to_kernel, how, shape, 1))
  *size, inputs, outputs = shape

  @own.def_vmap
  def side_by_side(clients, is_batched, *args):
    args = (
      jnp.moveaxis(a, 0, 3) if has_axis else jnp.stack([a] * clients, 3)
      for a, has_axis in zip(args, is_batched, strict=True)
    )  # [B, H, W, C, channels]
    args = [a.reshape(*a.shape[:3], -1) for a in args]
    wide = *size, inputs, clients * outputs
    dk = _to_kernel(how, wide, clients, *args)
    return jnp.moveaxis(dk.reshape(*wide[:3], clients, -1), 3, 0), True

  return own
