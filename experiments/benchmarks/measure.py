"""Measure one case: times, rates, the share of the ceiling.

A case, a large product and, on request, the best variants of PyTorch and a
round as README writes it (as_typed.py, a process of its own) run in turn.
Shares and ratios are computed for each repeat, between runs that follow each
other; then the median is taken.

FLOPs are those of the direct algorithm: 2 for a multiplication and an addition,
of convolutions and products alone, in the forward pass traced in the form
'lax', and twice as much for the gradient. Winograd convolutions count as direct
ones; normalisation, pooling and crops are not counted.

The product is XLA's own of two square float32 matrices, at the precision that
models have (on a GPU it may be tf32, for both).
"""

import contextlib
import functools
import importlib.util
import math
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from experiments.benchmarks import programs, yardstick
from experiments.benchmarks.cases import Case
from experiments.benchmarks.timing import (
  Run,
  Spread,
  in_turn,
  processes,
  ratios,
  spread,
)
from fedjax_pfl.core.types import Batch

NO_TORCH = 'PyTorch is not installed: pip install -e .[bench]'
SIDE = {'cpu': 2048}  # of the matrices
SIDE_ELSEWHERE = 8192
GRADIENT = 3  # forward passes that one gradient takes
TYPED = 'ours, as typed'


class Measured(NamedTuple):
  """Measurements of a case, and the amount of work of a run."""

  case: Case
  seconds: list[float]  # of ours
  product_seconds: list[float]
  torch_seconds: dict[str, list[float]]  # of the best variants of PyTorch
  typed_seconds: list[float]  # of ours as README writes it; [] without PyTorch
  images: int
  flops: float
  product_flops: float

  def rate(self, amount: float) -> Spread:
    """Return an amount per run as a rate per second."""
    return spread([amount / seconds for seconds in self.seconds])

  def share_of_product(self) -> Spread:
    """Return our FLOPs per second as a share of those of the product."""
    scale = self.flops / self.product_flops
    over = ratios(self.product_seconds, self.seconds)
    return spread([scale * ratio for ratio in over])

  @property
  def torch_variant(self) -> str | None:
    """Return the name of the fastest variant of PyTorch."""
    times = self.torch_seconds
    return min(times, key=lambda name: spread(times[name]).median, default=None)

  def against_torch(self, as_typed: bool = False) -> Spread | None:
    """Return how many times faster than the fastest PyTorch ours is."""
    seconds = self.typed_seconds if as_typed else self.seconds
    if not self.torch_seconds or not seconds:
      return None
    return spread(ratios(self.torch_seconds[self.torch_variant], seconds))


@functools.cache  # bars share cases
def measure(case: Case, work: str, repeats: int, with_torch: bool) -> Measured:
  """Return the measurements of `repeats` runs."""
  program = programs.make(case, work)
  program.run()  # the first call warms up
  side = SIDE.get(jax.default_backend(), SIDE_ELSEWHERE)
  runs = {'ours': program.run, 'product': _product(side)}
  with contextlib.ExitStack() as stack:
    if with_torch:
      for variant in yardstick.ranking(case).variants[: yardstick.FINALISTS]:
        running = yardstick.running(case, work, variant)
        runs[str(variant)] = stack.enter_context(running)
      if work == 'training':
        runs[TYPED] = stack.enter_context(as_typed(case))
    seconds = in_turn(runs, repeats)
  trained, tested = case.images, 0
  if work == 'evaluation':
    trained, tested = trained * case.epochs, case.clients * case.tests
  forward = forward_flops(case)
  return Measured(
    case=case,
    seconds=seconds.pop('ours'),
    product_seconds=seconds.pop('product'),
    typed_seconds=seconds.pop(TYPED, []),
    torch_seconds=seconds,
    images=trained + tested,
    flops=forward * (GRADIENT * trained + tested),
    product_flops=2 * side**3,
  )


def as_typed(case: Case) -> contextlib.AbstractContextManager[Run]:
  """Give a round as README writes it, without PyTorch's huge pages."""
  share = case.model, case.clients, case.steps, case.batch, case.momentum
  environ = {k: v for k, v in os.environ.items() if k != 'GLIBC_TUNABLES'}
  return processes('as_typed.py', [share], environ)


def has_torch() -> bool:
  return importlib.util.find_spec('torch') is not None


def _product(side: int) -> Run:
  """Return the product of two matrices, compiled and run once."""
  matrix = jax.random.normal(jax.random.key(0), (side, side))
  multiply = jax.jit(jnp.matmul).lower(matrix, matrix).compile()
  multiply(matrix, matrix).block_until_ready()
  return lambda: multiply(matrix, matrix).block_until_ready()


# ---- FLOPs of a model


@functools.cache
def forward_flops(case: Case) -> float:
  """Return the FLOPs of one image; traces the model, compiles nothing.

  >>> round(3 * forward_flops(Case('convnet4')) / 1e6)
  85
  """
  task, size = programs.make_task(case._replace(conv_impl='lax')), case.batch
  key = jax.eval_shape(jax.random.key, 0)
  batch = Batch(
    jax.ShapeDtypeStruct((size, *case.image_shape), 'float32'),
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
  programs = (part for part in leaves if isinstance(part, kinds))
  return [getattr(part, 'jaxpr', part) for part in programs]
