"""Initialise the head: the variants of the FedBABU paper (figures 3, 5, 7, 9).

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
"""

import jax
import jax.numpy as jnp
from jax.nn import initializers

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
