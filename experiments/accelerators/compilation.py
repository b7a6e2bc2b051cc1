"""Compile a program for a device that is not there; say what it takes."""

import time
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from jax.errors import JaxRuntimeError
from jax.stages import Lowered

from experiments.accelerators import (
  hlo_text,
  hlo_totals,
  kernels,
  memory,
  roofline,
)
from experiments.accelerators.devices import Device
from experiments.accelerators.hlo_totals import Costs
from experiments.accelerators.kernels import Kernel
from experiments.accelerators.memory import Memory
from experiments.accelerators.programs import Program
from fedjax_pfl.core.target import compiling_for


class Compiled(NamedTuple):
  """What the compiler says about a program."""

  program: Program
  device: Device
  precision: str  # of its products, as configs have it
  seconds: float  # of compiling
  error: str = ''  # why it did not compile, or does not fit
  memory: Memory | None = None  # None where it did not compile
  step: Costs | None = None  # None without a loop
  call: Costs | None = None  # of one call, with all that its loops repeat
  collectives: Mapping[str, tuple[float, float]] = MappingProxyType({})
  kernels: tuple[Kernel, ...] = ()  # of a step, the largest ones first

  @property
  def call_seconds(self) -> float:
    """Return the roofline time of one call."""
    return roofline.seconds(self.call, self.device, self.precision)

  @property
  def step_seconds(self) -> float | None:
    if self.step is None:
      return None
    return roofline.seconds(self.step, self.device, self.precision)

  def as_json(self) -> dict[str, Any]:
    """Return all numbers as one record."""
    program = self.program
    record = {
      'stage': program.stage,
      'program': program.kind,
      'clients_per_chunk': program.chunk,
      'images_per_step': program.images,
      'calls': program.calls,
      'precision': self.precision,
      'compiles': self.memory is not None,
      'error': self.error,
      'compile_seconds': round(self.seconds, 1),
    }
    if self.memory is None:
      return record
    return {
      **record,
      'memory': {**self.memory._asdict(), 'device': self.device.memory},
      'step': self._costs(self.step, self.step_seconds),
      'call': self._costs(self.call, self.call_seconds),
      'run_seconds': program.calls * self.call_seconds,
      'collectives': {
        name: {'number': number, 'bytes': moved}
        for name, (number, moved) in self.collectives.items()
      },
      **self._kernels(),
    }

  def _kernels(self) -> dict[str, Any]:
    if not self.kernels:
      return {}
    return {'kernels': [kernel.as_json() for kernel in self.kernels]}

  def _costs(self, costs: Costs | None, seconds: float | None):
    if costs is None:
      return None
    own = roofline.compiler_seconds(costs, self.device)
    return {**costs._asdict(), 'seconds': seconds, 'compiler_seconds': own}


def lower(program: Program, device: Device, kind: str) -> Lowered:
  """Return the program as the compiler gets it.

  `kind` is the platform as core/target.py calls it.
  """
  with compiling_for(kind, device.memory):
    return program.function.lower(*program.arguments)


def compile_program(
  program: Program,
  lowered: Lowered,
  device: Device,
  precision: str,
  num_kernels: int = 0,
) -> Compiled:
  """Return what the compiler says; an error that it raises is a part of it.

  With the `num_kernels` of a step that move most.
  """
  began = time.perf_counter()
  try:
    compiled = lowered.compile()
  except JaxRuntimeError as error:
    seconds = time.perf_counter() - began
    why = memory.why_not(error, lowered.as_text(), program, device)
    return Compiled(program, device, precision, seconds, why)
  seconds = time.perf_counter() - began
  used = memory.memory_of(compiled)
  module = hlo_text.parse(compiled.as_text())
  trips = loop_lengths(program, module)
  return Compiled(
    program,
    device,
    precision,
    seconds,
    memory.too_much(used, module, program, device),
    used,
    hlo_totals.step(module) if program.batch else None,
    hlo_totals.total(module, trips),
    hlo_totals.collectives(module, trips),
    (*kernels.largest(module, num_kernels),) if program.batch else (),
  )


def loop_lengths(program: Program, module: hlo_text.Module) -> hlo_totals.Trips:
  """Return how long loops are, by the file of the package that has the loop.

  The length for '' is that of all other files.
  """
  lengths = dict(program.lengths)

  def trips(loop: hlo_text.Instruction) -> float:
    file, _ = module.source(loop)
    return lengths.get(PurePath(file).name, lengths.get('', 1))

  return trips
