"""Measure one case: times, rates, the share of the ceiling, memory.

A case, a large product and, on request, the best variants of PyTorch and a
round as README writes it (as_typed.py, a process of its own) run in turn.
Shares and ratios are computed for each repeat, between runs that follow each
other; then the median is taken.

The product is XLA's own of two square float32 matrices, at the precision that
models have (on a GPU it may be tf32, for both).
"""

import contextlib
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.benchmarks import counts, programs, yardstick
from experiments.benchmarks.cases import Case
from experiments.benchmarks.timing import Run, Spread, in_turn, ratios, spread

NO_TORCH = 'PyTorch is not installed: pip install -e .[bench]'
SIDE = {'cpu': 2048}  # of the matrices
SIDE_ELSEWHERE = 8192
TYPED = 'ours, as typed'
PROGRAM = Path(__file__).parent / 'as_typed.py'


class Measured(NamedTuple):
  """Measurements of a case, and the amount of work of a run."""

  case: Case
  work: str
  clients_per_chunk: int
  compile_seconds: float
  memory: int  # bytes, as reported by the compiler
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
    return spread([scale * one for one in over])

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

  def as_json(self) -> dict[str, Any]:
    """Return all measurements and derived numbers for a JSON file."""
    spreads = {
      'runs_per_second': self.rate(1),
      'images_per_second': self.rate(self.images),
      'flops_per_second': self.rate(self.flops),
      'share_of_product': self.share_of_product(),
      'against_torch': self.against_torch(),
      'typed_against_torch': self.against_torch(as_typed=True),
    }
    return {
      **self._asdict(),
      'case': self.case._asdict(),
      **{name: one and one._asdict() for name, one in spreads.items()},
      'torch_variant': self.torch_variant,
    }


@functools.cache  # the table and the bars share cases
def measure(case: Case, work: str, repeats: int, with_torch: bool) -> Measured:
  """Return the measurements of `repeats` runs.

  >>> measure(Case('convnet4'), 'training', 3, with_torch=False)
  """
  program = programs.make(case, work)
  program.run()  # the first call warms up
  side = SIDE.get(jax.default_backend(), SIDE_ELSEWHERE)
  runs = {'ours': program.run, 'product': _product(side)}
  with contextlib.ExitStack() as stack:
    if with_torch:
      runs |= stack.enter_context(yardstick.finalists(case, work))
      if work == 'training':
        runs[TYPED] = stack.enter_context(as_typed(case))
    seconds = in_turn(runs, repeats)
  trained, tested = case.images, 0
  if work == 'evaluation':
    trained, tested = trained * case.epochs, case.clients * case.tests
  forward = counts.forward_flops(case.model, case.image_shape, case.num_classes)
  return Measured(
    case=case,
    work=work,
    clients_per_chunk=program.clients_per_chunk,
    compile_seconds=program.compile_seconds,
    memory=program.memory,
    seconds=seconds.pop('ours'),
    product_seconds=seconds.pop('product'),
    typed_seconds=seconds.pop(TYPED, []),
    torch_seconds=seconds,
    images=trained + tested,
    flops=forward * (counts.GRADIENT * trained + tested),
    product_flops=2 * side**3,
  )


@contextlib.contextmanager
def as_typed(case: Case) -> Iterator[Run]:
  """Give a round as README writes it, warm, in a process of its own."""
  numbers = case.clients, case.steps, case.batch, case.momentum
  command = [sys.executable, str(PROGRAM), case.model, *map(str, numbers)]
  with subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as process:

    def run():
      process.stdin.write('\n')
      process.stdin.flush()
      if not process.stdout.readline():
        raise RuntimeError(f'{" ".join(command)} has ended')

    run()  # compiles
    yield run
    process.stdin.close()


def has_torch() -> bool:
  return importlib.util.find_spec('torch') is not None


def _product(side: int) -> Run:
  """Return the product of two matrices, compiled and run once."""
  matrix = jax.random.normal(jax.random.key(0), (side, side))
  multiply = jax.jit(jnp.matmul).lower(matrix, matrix).compile()
  multiply(matrix, matrix).block_until_ready()
  return lambda: multiply(matrix, matrix).block_until_ready()
