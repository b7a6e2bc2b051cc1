"""Pool features to one width, for models of different architectures.

  f'_j = mean of f_i,  floor(j F / W) <= i < ceil((j + 1) F / W)    j = 1 .. W

Adaptive average pooling of features [B, F] to [B, W], without parameters, as
HtFLlib has it: the head is then [W, Y] in each architecture, and class means
are [Y, W].
"""

import dataclasses
import functools

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array


def with_width(module: nn.Module, width: int) -> nn.Module:
  """Return the module with features of this width."""
  if not isinstance(module, nn.Module):
    raise bad_input(
      'feature_width',
      got=f'{width}, with {type(module).__name__}',
      expected='modules of flax.linen, whose head takes the width it is given',
      choices=['feature_width=0'],
      cause='a module of flax.nnx, or adapters, whose head has a width already',
    )
  kind = type(module)

  class Pooled(kind):
    @functools.wraps(kind.features)  # with its argument `train`, if any
    def features(self, *args, **kwargs):
      return pooled(super().features(*args, **kwargs), width)

  fields = (field.name for field in dataclasses.fields(module) if field.init)
  given = {name: getattr(module, name) for name in fields}
  Pooled.__name__ = kind.__name__
  return Pooled(**{**given, 'parent': None})


def pooled(features: Array, width: int) -> Array:
  """Return features [.., F] as [.., W].

  >>> pooled(jnp.array([[1.0, 2.0, 3.0]]), 2)
  Array([[1.5, 2.5]], dtype=float32)
  """
  size = features.shape[-1]
  if size == width:
    return features
  bins = np.arange(width)
  first, last = bins * size // width, -(-(bins + 1) * size // width)
  rows = np.arange(size)[:, None]
  matrix = ((rows >= first) & (rows < last)) / (last - first)  # [F, W]
  return features @ jnp.asarray(matrix, features.dtype)
