"""XLA's convolutions, with gradients of kernels that it recognises on a GPU.

Of clients side by side a convolution becomes a grouped one. XLA does not match
the gradient of its kernel to cuDNN's: it computes a convolution whose window is
the whole image, after two transposes. Grouped first and then differentiated, it
is cuDNN's backward filter.

The result and both gradients are derivatives of one number, T(x, k, dy) =
sum conv(x, k) dy, so that each has the others as its own gradients.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.lax import PrecisionLike

from fedjax_pfl.models.ops.passes import by_hand

Padding = tuple[tuple[int, int], tuple[int, int]]
Spec = tuple[int, Padding, PrecisionLike]  # stride, padding, precision


@by_hand(2)
def conv(x: Array, kernel: Array, spec: Spec):
  """Convolve x [B, H, W, I] with kernel [k, l, I, O]."""
  return _convolve(spec, x, kernel), (x, kernel)


@conv.gradient
def _conv(spec, saved, dy):
  x, kernel = saved
  dk = _kernel_gradient(x, dy, spec, kernel.shape)
  return _image_gradient(spec, x, kernel, dy), dk


@by_hand(2, 3)
def _kernel_gradient(x, dy, spec, shape):
  return _of_clients(spec, shape)(x, dy), (x, dy)


@_kernel_gradient.gradient
def _second(spec, shape, saved, dk):
  x, dy = saved
  return _image_gradient(spec, x, dk, dy), conv(x, dk, spec)


def _image_gradient(spec, x, kernel, dy):
  return jax.linear_transpose(lambda x: _convolve(spec, x, kernel), x)(dy)[0]


def _convolve(spec, x, kernel, groups=1):
  stride, padding, precision = spec
  return lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    feature_group_count=groups,
    precision=precision,
  )


def _grouped_gradient(spec, shape, groups, x, dy):
  like = jax.ShapeDtypeStruct(shape, x.dtype)
  of_kernel = functools.partial(_convolve, spec, x, groups=groups)
  return jax.linear_transpose(of_kernel, like)(dy)[0]


@functools.cache
def _of_clients(spec, shape):
  one_client = functools.partial(_grouped_gradient, spec, shape, 1)
  kernel_gradient = custom_vmap(one_client)
  *size, inputs, outputs = shape

  @kernel_gradient.def_vmap
  def side_by_side(clients, is_batched, *args):
    args = (
      jnp.moveaxis(a, 0, 3) if has_axis else jnp.stack([a] * clients, 3)
      for a, has_axis in zip(args, is_batched, strict=True)
    )  # [B, H, W, C, channels]
    args = [a.reshape(*a.shape[:3], -1) for a in args]
    wide = *size, inputs, clients * outputs
    dk = _grouped_gradient(spec, wide, clients, *args)
    return jnp.moveaxis(dk.reshape(*wide[:3], clients, -1), 3, 0), True

  return kernel_gradient
