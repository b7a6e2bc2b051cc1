"""XLA's convolutions, with gradients of kernels that it recognises on a GPU.

Of clients side by side a convolution becomes a grouped one. XLA does not match
the gradient of its kernel to cuDNN's: it computes a convolution whose window is
the whole image, after two transposes. Grouped first and then differentiated, it
is cuDNN's backward filter.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from fedjax_pfl.models.ops.passes import convolution


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


def _to_kernel(how, shape, x, dy):
  return _of_clients(how, shape)(x, dy)


def _alone(how, shape, groups, x, dy):
  like = jax.ShapeDtypeStruct(shape, x.dtype)
  of_kernel = functools.partial(_conv, how, x, groups=groups)
  return jax.linear_transpose(of_kernel, like)(dy)[0]


@functools.cache
def _of_clients(how, shape):
  own = custom_vmap(functools.partial(_alone, how, shape, 1))
  *size, inputs, outputs = shape

  @own.def_vmap
  def side_by_side(clients, is_batched, *args):
    args = (
      jnp.moveaxis(a, 0, 3) if has_axis else jnp.stack([a] * clients, 3)
      for a, has_axis in zip(args, is_batched, strict=True)
    )  # [B, H, W, C, channels]
    args = [a.reshape(*a.shape[:3], -1) for a in args]
    wide = *size, inputs, clients * outputs
    dk = _alone(how, wide, clients, *args)
    return jnp.moveaxis(dk.reshape(*wide[:3], clients, -1), 3, 0), True

  return own


conv = convolution(_conv, _to_input, _to_kernel)
