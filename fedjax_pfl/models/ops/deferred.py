"""Layers of a traced function that are not computed yet.

A convolution is a `Layer`; a bias, a ReLU, a pooling that follow are others,
made of it. Whoever needs numbers calls `compute`. Then a function of `fuse.py`
takes the largest group of layers for which there is one function.
"""

import dataclasses
import functools
from collections.abc import Callable

from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.batch_norm import Running

Padding = tuple[tuple[int, int], tuple[int, int]]
layer = dataclasses.dataclass(eq=False)


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


@layer
class Conv(Layer):
  """A convolution; a depthwise one has a kernel [3, 3, C]."""

  x: Value
  kernel: Array
  stride: int
  padding: Padding
  depthwise: bool
  precision: PrecisionLike


@layer
class Bias(Layer):
  """of + bias, with one number a channel."""

  of: Value
  bias: Array


@layer
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


@layer
class Add(Layer):
  """norm + skip, where the skip is zero outside of the mask, too."""

  norm: Norm
  skip: Value


@layer
class Relu(Layer):
  """max(of, 0)"""

  of: Value


@layer
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
