"""Layers of a traced function that are not computed yet.

A convolution is a `Deferred`; a bias, a ReLU, a pooling that follow wrap it in
another one. Whoever needs numbers calls `compute`. Then a `Fuse` function
takes the largest group of layers for which it has one function: `cpu_layers.py`
for a CPU, `common_layers.py` for a GPU.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array

Padding = tuple[tuple[int, int], tuple[int, int]]


class Deferred:
  """A layer whose result [B, H, W, C] has not been computed, or only once."""

  __match_args__ = ('layer',)

  def __init__(self, layer: 'Layer', shape: tuple[int, ...], fuse: 'Fuse'):
    self.layer = layer
    self.shape = shape
    self._fuse = fuse

  @functools.cached_property
  def array(self) -> Array:
    return self._fuse(self.layer)


Value = Array | Deferred


class Conv(NamedTuple):
  """A convolution; a depthwise one has a kernel [3, 3, C]."""

  x: Array
  kernel: Array
  stride: int
  padding: Padding
  depthwise: bool
  precision: PrecisionLike


class Bias(NamedTuple):
  """of + bias, with one number a channel."""

  of: Value
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


Layer = Conv | Bias | Norm | Add | Relu | Pool
Fuse = Callable[[Layer], Array]


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


def without_bias(value: Value) -> Value:
  """Return what is normalised, without a bias, which the mean removes.

  Its gradient is exactly zero.
  """
  match value:
    case Deferred(Bias(of)):
      return of
  return value
