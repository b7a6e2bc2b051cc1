"""FLOPs and bytes of a model: FLOPs by definition, bytes as counted by XLA.

FLOPs are those of the direct algorithm, 2 for a multiplication and an addition,
of convolutions and products alone: the forward pass traced in the form 'lax',
and twice as much for the gradient. Winograd convolutions count as direct ones;
normalisation, pooling and crops are not counted.
"""

import functools
import math

import jax
import optax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from experiments.benchmarks.cases import Case, make_clients, make_task
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
  task = make_task(case)
  key = jax.eval_shape(jax.random.key, 0)
  params = jax.eval_shape(task.init, key)
  batch = _batch_shapes(case)
  traced = jax.make_jaxpr(task.train_outputs)(params, batch, key)
  return count_flops(traced.jaxpr) / case.batch


def count_flops(jaxpr: Jaxpr) -> float:
  """Return the FLOPs of the convolutions and products of a program."""
  return sum(_flops_of(equation) for equation in jaxpr.eqns)


@functools.cache  # training and fine-tuning have the same step
def step_bytes(case: Case) -> float | None:
  """Return the bytes that one step of one client moves; None if unknown.

  As XLA counts them in the compiled step (crop, flip, gradient, SGD): operands
  and results of all its fusions, in a cache or not.
  """
  with jax.enable_x64(case.dtype == 'float64'):
    task, data = make_task(case), make_clients(case)
    sgd = optax.sgd(0.1, 0.9)

    def step(params, state, x, y, key):
      x = task.augment(x, key)
      batch = Batch(x, y, (y >= 0).astype(x.dtype))
      grads = jax.grad(task.loss)(params, batch, key)
      updates, state = sgd.update(grads, state, params)
      return optax.apply_updates(params, updates), state

    key = jax.random.key(0)
    params = jax.eval_shape(task.init, key)
    shapes = params, jax.eval_shape(sgd.init, params)
    rows = data.x[: case.batch], data.y[: case.batch]
    compiled = jax.jit(step).lower(*shapes, *rows, key).compile()
  costs = compiled.cost_analysis() or {}
  return costs.get('bytes accessed')


def _batch_shapes(case: Case) -> Batch:
  shape = jax.ShapeDtypeStruct
  size = case.batch
  return Batch(
    shape((size, *case.image_shape), 'float32'),
    shape((size,), 'int32'),
    shape((size,), 'float32'),
  )


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
  inner = sum(count_flops(part) for part in _parts(equation))
  assert not (inner and name in ('while', 'cond')), f'a {name} is not counted'
  return equation.params.get('length', 1) * inner  # of a scan


def _parts(equation: JaxprEqn):
  """Yield the programs inside an equation."""
  for value in equation.params.values():
    for one in value if isinstance(value, tuple | list) else (value,):
      if isinstance(one, ClosedJaxpr):
        yield one.jaxpr
      elif isinstance(one, Jaxpr):
        yield one
