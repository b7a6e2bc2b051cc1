"""Measure one case: times, rates, shares of the ceilings, memory.

A case, the ceilings and, on request, the best variants of PyTorch run in turn.
Shares and ratios are computed for each repeat, between runs that follow each
other; then the median is taken.

The ceilings are a large product and a large copy. The product is XLA's own of
two square matrices in the dtype of the case, at the precision that models have
(on a GPU float32 may mean tf32, for both). The copy is into allocated memory;
it reads and writes each byte once. On a CPU it is numpy's, with a thread for
each core: XLA would allocate new pages each time.
"""

import contextlib
import functools
import importlib.util
import os
from concurrent import futures
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import cases, counts, yardstick
from experiments.benchmarks.cases import Case
from experiments.benchmarks.timing import Run, Spread, in_turn, ratios, spread

NO_TORCH = 'PyTorch is not installed: pip install -e .[bench]'


SIDE = {'cpu': 2048}  # of the matrices
SIDE_ELSEWHERE = 8192
COPIED = {'cpu': 2**27}  # bytes: more than any cache holds
COPIED_ELSEWHERE = 2**31


class Measured(NamedTuple):
  """Measurements of a case, and the amount of work of a run."""

  case: Case
  work: str
  clients_per_chunk: int
  compile_seconds: float
  memory: int  # bytes, as reported by the compiler
  device_peak: int | None  # bytes, of the process so far; on a GPU
  seconds: dict[str, list[float]]  # of ours, product, copy
  torch_seconds: dict[str, list[float]]  # of the best variants of PyTorch
  images: int
  flops: float
  bytes: float | None
  ceilings: dict[str, float]  # FLOPs and bytes of a product and a copy

  def rate(self, amount: float) -> Spread:
    """Return an amount per run as a rate per second."""
    return spread([amount / seconds for seconds in self.seconds['ours']])

  def share(self, ceiling: str, amount: float) -> Spread:
    """Return our rate as a share of that of a ceiling."""
    scale = amount / self.ceilings[ceiling]
    over = ratios(self.seconds[ceiling], self.seconds['ours'])
    return spread([scale * one for one in over])

  @property
  def torch_variant(self) -> str | None:
    """Return the name of the fastest variant of PyTorch."""
    times = self.torch_seconds
    return yardstick.fastest(times) if times else None

  def against_torch(self) -> Spread | None:
    """Return how many times faster than the fastest PyTorch ours is."""
    if not self.torch_seconds:
      return None
    theirs = self.torch_seconds[self.torch_variant]
    return spread(ratios(theirs, self.seconds['ours']))

  def as_json(self) -> dict[str, Any]:
    """Return all measurements and derived numbers for a JSON file."""
    torch = self.against_torch()
    numbers = {
      **self._asdict(),
      'case': self.case._asdict(),
      'runs_per_second': self.rate(1)._asdict(),
      'images_per_second': self.rate(self.images)._asdict(),
      'flops_per_second': self.rate(self.flops)._asdict(),
      'share_of_product': self.share('product', self.flops)._asdict(),
      'against_torch': torch and torch._asdict(),
      'torch_variant': self.torch_variant,
    }
    if self.bytes is not None:
      numbers['bytes_per_second'] = self.rate(self.bytes)._asdict()
      numbers['share_of_copy'] = self.share('copy', self.bytes)._asdict()
    return numbers


@functools.cache  # the table and the bars share cases
def measure(
  case: Case, work: str, repeats: int, with_torch: bool, with_bytes: bool = True
) -> Measured:
  """Return the measurements of `repeats` runs; bytes cost a compilation.

  >>> measure(Case('convnet4'), 'training', 3, with_torch=False)
  """
  program = cases.make(case, work)
  program.run()  # the first call warms up
  ceilings = make_ceilings(case.dtype)
  ours = {'ours': program.run}
  with contextlib.ExitStack() as stack:
    theirs = {}
    if with_torch:
      theirs = stack.enter_context(yardstick.finalists(case, work))
    ends = {name: ceiling.run for name, ceiling in ceilings.items()}
    seconds = in_turn({**ours, **theirs, **ends}, repeats)
  torch_seconds = {name: seconds.pop(name) for name in theirs}
  images, flops = _amounts(case, work)
  step = counts.step_bytes(case) if with_bytes else None
  return Measured(
    case,
    work,
    program.clients_per_chunk,
    program.compile_seconds,
    program.memory,
    device_peak(),
    seconds,
    torch_seconds,
    images,
    flops,
    step and step / case.batch * _gradients(case, work),
    {name: ceiling.amount for name, ceiling in ceilings.items()},
  )


def has_torch() -> bool:
  return importlib.util.find_spec('torch') is not None


def device_peak() -> int | None:
  """Return the peak of bytes in use, where the device counts them."""
  stats = jax.devices()[0].memory_stats() or {}
  return stats.get('peak_bytes_in_use')


def _gradients(case: Case, work: str) -> int:
  """Return the number of images with a gradient."""
  return case.images * (case.epochs if work == 'evaluation' else 1)


def _amounts(case: Case, work: str) -> tuple[int, float]:
  """Return the images and the FLOPs of a run."""
  forward = counts.forward_flops(case.model, case.image_shape, case.num_classes)
  trained = _gradients(case, work)
  tested = case.clients * case.tests if work == 'evaluation' else 0
  return trained + tested, forward * (counts.GRADIENT * trained + tested)


class Ceiling(NamedTuple):
  """A run at the limit of the machine."""

  run: Run
  amount: float  # FLOPs or bytes of one run


def make_ceilings(dtype: str) -> dict[str, Ceiling]:
  """Return the product and the copy, compiled and run once."""
  ceilings = {'product': _product(dtype), 'copy': _copy()}
  for ceiling in ceilings.values():
    ceiling.run()
  return ceilings


def _product(dtype: str) -> Ceiling:
  side = SIDE.get(jax.default_backend(), SIDE_ELSEWHERE)
  with jax.enable_x64(dtype == 'float64'):
    matrix = jax.random.normal(jax.random.key(0), (side, side), dtype)
    multiply = jax.jit(jnp.matmul).lower(matrix, matrix).compile()
  return Ceiling(
    lambda: multiply(matrix, matrix).block_until_ready(), 2 * side**3
  )


def _copy() -> Ceiling:
  size = COPIED.get(jax.default_backend(), COPIED_ELSEWHERE)
  if jax.default_backend() == 'cpu':
    return Ceiling(_host_copy(size), 2 * size)
  source = jnp.zeros(size, jnp.uint8)
  copy = jax.jit(jnp.copy)
  return Ceiling(lambda: copy(source).block_until_ready(), 2 * size)


def _host_copy(size: int) -> Run:
  cores = os.cpu_count() or 1
  sources = np.array_split(np.ones(size, np.uint8), cores)
  targets = np.array_split(np.zeros(size, np.uint8), cores)
  pool = futures.ThreadPoolExecutor(cores)
  return lambda: list(pool.map(np.copyto, targets, sources))
