"""Compile a program for a device that is not there; say what it takes.

The numbers are XLA's own: `memory_analysis()` and, on a TPU, `cost_analysis()`,
which counts each loop once: of a round a step of all clients side by side, and
the work around it. A compiler for GPUs has none.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from jax.errors import JaxRuntimeError
from jax.stages import Traced

from experiments.accelerators import too_large
from experiments.accelerators.plan import Plan
from experiments.accelerators.programs import Program, make_programs
from experiments.accelerators.targets import Device, Where
from fedjax_pfl.core.target import compiling_for


class Memory(NamedTuple):
  """Bytes of a program on one device."""

  arguments: int
  results: int
  temporary: int
  shared: int  # of results that lie where arguments were

  @property
  def total(self) -> int:
    return self.arguments + self.results + self.temporary - self.shared


class Costs(NamedTuple):
  """Work of a program on one device, each loop counted once."""

  flops: float
  bytes: float  # of operands and results, a TPU's fast memory included


class Compiled(NamedTuple):
  """What the compiler says about a program."""

  program: Program
  device: Device
  precision: str  # of its products, as configs have it
  seconds: float  # of compiling
  error: str = ''  # why it did not compile, or does not fit
  memory: Memory | None = None  # None where it did not compile
  costs: Costs | None = None  # None where the compiler counts none

  def as_json(self) -> dict[str, Any]:
    """Return all numbers as one record."""
    program, memory = self.program, None
    if self.memory is not None:
      memory = {**self.memory._asdict(), 'device': self.device.memory}
    return {
      'stage': program.stage,
      'program': program.kind,
      'clients_per_chunk': program.chunk,
      'images_per_step': program.images,
      'calls': program.calls,
      'precision': self.precision,
      'compiles': memory is not None,
      'error': self.error,
      'compile_seconds': round(self.seconds, 1),
      'memory': memory,
      'costs': self.costs and self.costs._asdict(),
    }


def traced_programs(
  where: Where, plan: Plan
) -> Iterator[tuple[Program, Traced]]:
  """Yield the programs of a plan as the compiler for the devices gets them."""
  with compiling_for(where.kind, where.device.memory):
    for program in make_programs(plan, where.devices):
      yield program, program.function.trace(*program.arguments)


def compile_program(
  program: Program, traced: Traced, device: Device, precision: str
) -> Compiled:
  """Return what the compiler says; an error that it raises is a part of it."""
  lowered = traced.lower()
  began = time.perf_counter()
  try:
    compiled = lowered.compile()
  except JaxRuntimeError as error:
    seconds = time.perf_counter() - began
    why = too_large.why_not(error, traced.jaxpr, program, device)
    return Compiled(program, device, precision, seconds, why)
  seconds = time.perf_counter() - began
  used = memory_of(compiled)
  error = ''
  if used.total > device.memory:  # a compiler for GPUs does not mind
    resident = used.arguments + used.results - used.shared
    error = too_large.sentence(
      program, traced.jaxpr, device, used.total, resident
    )
  costs = costs_of(compiled)
  return Compiled(program, device, precision, seconds, error, used, costs)


def memory_of(compiled: Any) -> Memory:
  """Return the memory of what jax compiled."""
  found = compiled.memory_analysis()
  return Memory(
    int(found.argument_size_in_bytes),
    int(found.output_size_in_bytes),
    int(found.temp_size_in_bytes),
    int(found.alias_size_in_bytes),
  )


def costs_of(compiled: Any) -> Costs | None:
  """Return XLA's count of what jax compiled; None where it makes none."""
  found = compiled.cost_analysis() or {}
  if 'flops' not in found:
    return None
  return Costs(found['flops'], found['bytes accessed'])
