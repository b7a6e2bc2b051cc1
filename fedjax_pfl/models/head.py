"""The head: how it begins, and the width of what it takes.

Initialisations are the variants of the FedBABU paper (figures 3, 5, 7, 9).

For a head W of Y classes and F features, with the gain sqrt(2) of a ReLU:

  default          that of the model; of convnet4: U(-1/sqrt(F), 1/sqrt(F))
  xavier_uniform   U(-a, a),    a = sqrt(2) sqrt(6 / (F + Y))
  xavier_normal    N(0, std^2), std = sqrt(2) sqrt(2 / (F + Y))
  he_uniform       U(-a, a),    a = sqrt(6 / F)
  he_normal        N(0, std^2), std = sqrt(2 / F)
  orthogonal       sqrt(2) x a matrix [Y, F] with orthonormal rows
  similar          U(0.45, 0.55), then every row divided by its norm

A row of W is a class; the kernel here is its transpose [F, Y], so that a class
is a column. With more classes than features no Y rows can be orthogonal: then
the F columns of W are, as in PyTorch. Rows of 'similar' have cosines of about
1 / (1 + 0.1^2 / 12 / 0.5^2) = 0.9967.

The bias is the model's or zero, as in all of that paper's centralised runs.

Where models differ, features may be pooled to one width: adaptive average
pooling of [B, F] to [B, W], without parameters, as HtFLlib has it. The head is
then [W, Y] in each architecture, and class means are [Y, W]:

  f'_j = mean of f_i,  floor(j F / W) <= i < ceil((j + 1) F / W)    j = 1 .. W
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import initializers

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Key, Params, Task

GAIN = 2**0.5
DEFAULT = 'default'


def _similar(key: Key, shape: tuple[int, int], dtype) -> Array:
  kernel = jax.random.uniform(key, shape, dtype, 0.45, 0.55)  # [F, Y]
  return kernel / jnp.linalg.norm(kernel, axis=0)


# Of a kernel [in, out]; a scale is the square of a gain.
KERNELS = {
  'xavier_uniform': initializers.variance_scaling(2, 'fan_avg', 'uniform'),
  'xavier_normal': initializers.variance_scaling(2, 'fan_avg', 'normal'),
  'he_uniform': initializers.variance_scaling(2, 'fan_in', 'uniform'),
  'he_normal': initializers.variance_scaling(2, 'fan_in', 'normal'),
  'orthogonal': initializers.orthogonal(GAIN),
  'similar': _similar,
}
HEAD_INITS = (DEFAULT, *KERNELS)
HEAD_BIASES = (DEFAULT, 'zero')


def with_head(task: Task, init: str, bias: str) -> Task:
  """Return the task with another initialisation of its head."""
  if init == bias == DEFAULT:
    return task

  @jax.jit
  def draw(head: Params, key: Key) -> Params:
    kernel, old = head['kernel'], head['bias']
    if init != DEFAULT:
      kernel = KERNELS[init](key, kernel.shape, kernel.dtype)
    new = jnp.zeros_like(old) if bias == 'zero' else old
    return {'kernel': kernel, 'bias': new}

  def init_params(key: Key) -> Params:
    # The model's own program draws the rest: the same bits for every head.
    params = task.init(key)
    return params | {'head': draw(params['head'], jax.random.fold_in(key, 1))}

  return task._replace(init=init_params)


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
