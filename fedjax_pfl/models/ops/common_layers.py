"""Layers in few passes over memory: `conv_impl='fused'`, for accelerators.

  relu(norm(x) + skip)           batch_norm.py
  pool(relu(norm(x)))            batch_norm.py
  depthwise(relu(norm(x)))       separable.py
  pointwise, depthwise           separable.py
  pool(relu(x))                  relu(pool(x)): the ReLU of fewer pixels

XLA has all other convolutions. `conv_impl='lax'` has the last line alone;
`'gemm'` has cpu_layers.py before these.
"""

import jax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import batch_norm, pool, separable
from fedjax_pfl.models.ops.deferred import (
  Add,
  Bias,
  Conv,
  Deferred,
  Layer,
  Norm,
  Pool,
  Relu,
  compute,
  without_bias,
)


def fuse(layer: Layer) -> Array:
  """Return the result of a layer, with the layers that it is made of."""
  match layer:
    case Conv(Deferred(Relu(Deferred(Norm() as n))), kernel, s, depthwise=True):
      x = compute(without_bias(n.of))
      return separable.norm_depthwise(x, n.scale, n.bias, n.mask, kernel, s)
    case Conv(x, kernel, stride, depthwise=True):
      return separable.depthwise(compute(x), kernel, stride)
    case Conv(x, kernel, precision=precision):
      return separable.pointwise(compute(x), kernel[0, 0], precision)
    case Pool(Deferred(Relu(Deferred(Norm() as n))), size):
      x = compute(without_bias(n.of))
      return batch_norm.norm_pool(x, n.scale, n.bias, n.mask, size)
    case Bias(of, bias):
      return compute(of) + bias
    case Norm() | Add():
      return _normalise(layer, relu=False)
    case Relu(Deferred(Norm() | Add() as of)):
      return _normalise(of, relu=True)
    case Pool(Deferred(Relu(of)), size):
      return jax.nn.relu(pool.max_pool(compute(of), size))
    case Relu(of):
      return jax.nn.relu(compute(of))
    case Pool(of, size):
      return pool.max_pool(compute(of), size)
  raise AssertionError(layer)


def _normalise(layer: Norm | Add, relu: bool) -> Array:
  n, skip = layer, None
  if isinstance(layer, Add):
    n, skip = layer.norm.layer, compute(layer.skip)
  x = compute(without_bias(n.of))
  return batch_norm.norm(x, skip, n.scale, n.bias, n.mask, relu)
