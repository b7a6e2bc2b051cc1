"""FLOPs of a model by definition: those of the direct algorithm.

2 for a multiplication and an addition, of convolutions and products alone: the
forward pass traced in the form 'lax', and twice as much for the gradient.
Winograd convolutions count as direct ones; normalisation, pooling and crops
are not counted.
"""

import functools
import math

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

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
  total = 0
  for equation in jaxpr.eqns:
    name, given = equation.primitive.name, equation.params
    if name == 'conv_general_dilated':
      kernel = equation.invars[1].aval.shape
      outputs = kernel[given['dimension_numbers'].rhs_spec[0]]
      each = math.prod(kernel) / outputs
    elif name == 'dot_general':
      (contracted, _), _ = given['dimension_numbers']
      left = equation.invars[0].aval.shape
      each = math.prod(left[axis] for axis in contracted)
    else:
      inner = sum(map(count_flops, _programs_in(given)))
      assert not (inner and name in ('while', 'cond')), f'{name}: not counted'
      total += given.get('length', 1) * inner  # of a scan
      continue
    total += 2 * equation.outvars[0].aval.size * each
  return total


def _programs_in(parameters: dict) -> list[Jaxpr]:
  """Return the programs among the parameters of an equation."""
  kinds = (ClosedJaxpr, Jaxpr)
  leaves = jax.tree.leaves(
    [*parameters.values()], is_leaf=lambda part: isinstance(part, kinds)
  )
  found = [part for part in leaves if isinstance(part, kinds)]
  return [getattr(part, 'jaxpr', part) for part in found]
