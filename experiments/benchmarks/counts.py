"""FLOPs of a model by definition: those of the direct algorithm.

2 for a multiplication and an addition, of convolutions and products alone: the
forward pass traced in the form 'lax', and twice as much for the gradient.
Winograd convolutions count as direct ones; normalisation, pooling and crops
are not counted.
"""

import functools
import math

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from experiments.benchmarks.cases import Case
from experiments.benchmarks.programs import make_task
from fedjax_pfl.core.types import Batch

GRADIENT = 3  # forward passes that one gradient takes


@functools.cache
def forward_flops(
  model: str, image_shape: tuple[int, int, int], num_classes: int
) -> float:
  """Return the FLOPs of one image; traces the model, compiles nothing.

  >>> round(3 * forward_flops('convnet4', (32, 32, 3), 10) / 1e6)
  85
  """
  case = Case(
    model, conv_impl='lax', image_shape=image_shape, num_classes=num_classes
  )
  task, size = make_task(case), case.batch
  key = jax.eval_shape(jax.random.key, 0)
  batch = Batch(
    jax.ShapeDtypeStruct((size, *image_shape), 'float32'),
    jax.ShapeDtypeStruct((size,), 'int32'),
    jax.ShapeDtypeStruct((size,), 'float32'),
  )
  params = jax.eval_shape(task.init, key)
  traced = jax.make_jaxpr(task.train_outputs)(params, batch, key)
  return count_flops(traced.jaxpr) / size


def count_flops(jaxpr: Jaxpr) -> float:
  """Return the FLOPs of the convolutions and products of a program."""
  return sum(_flops_of(equation) for equation in jaxpr.eqns)


def _flops_of(equation: JaxprEqn) -> float:
  name, out = equation.primitive.name, equation.outvars
  if name == 'conv_general_dilated':
    kernel = equation.invars[1].aval.shape
    outputs = equation.params['dimension_numbers'].rhs_spec[0]
    return 2 * out[0].aval.size * math.prod(kernel) / kernel[outputs]
  if name == 'dot_general':
    (contracted, _), _ = equation.params['dimension_numbers']
    left = equation.invars[0].aval.shape
    return 2 * out[0].aval.size * math.prod(left[axis] for axis in contracted)
  parts = jax.tree.leaves(
    [*equation.params.values()],
    is_leaf=lambda value: isinstance(value, ClosedJaxpr | Jaxpr),
  )
  inner = sum(
    count_flops(getattr(part, 'jaxpr', part))
    for part in parts
    if isinstance(part, ClosedJaxpr | Jaxpr)
  )
  assert not (inner and name in ('while', 'cond')), f'a {name} is not counted'
  return equation.params.get('length', 1) * inner  # of a scan
