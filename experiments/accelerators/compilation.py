"""Compile the programs of a config; say what each takes, in one record.

The numbers are XLA's own: `memory_analysis()` and, on a TPU, `cost_analysis()`,
which counts each loop once: of a round a step of all clients side by side, and
the work around it. A compiler for GPUs has none.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax.errors import JaxRuntimeError
from jax.stages import Lowered

from experiments.accelerators.programs import (
  Program,
  make_plan,
  make_programs,
)
from experiments.accelerators.targets import Device, Where
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.federated.chunking import MEMORY_SHARE
from fedjax_pfl.training.build import Experiment

Record = dict[str, Any]  # of a program, as results/accelerators has it


def plan_for(where: Where, config: Mapping[str, Any]) -> Experiment:
  """Return the experiment of a config, traced for the devices."""
  _ = where.devices  # refuses what is not there
  with compiling_for(where.kind, where.device.memory):
    return make_plan(config)


def lowered_programs(
  where: Where, plan: Experiment
) -> Iterator[tuple[Program, Lowered]]:
  """Yield the programs of a plan as the compiler for the devices gets them."""
  with compiling_for(where.kind, where.device.memory):
    for program in make_programs(plan, where.devices):
      arguments = program.arguments.values()
      yield program, jax.jit(program.function).lower(*arguments)


def compile_program(
  program: Program, lowered: Lowered, device: Device, precision: str
) -> Record:
  """Return what the compiler says; an error that it raises is a part of it."""
  began, memory, costs = time.perf_counter(), None, None
  try:
    compiled = lowered.compile()
  except JaxRuntimeError as exception:
    error, *_ = [*str(exception).strip().splitlines(), 'no reason is given']
  else:
    sizes = compiled.memory_analysis()
    memory = {
      'arguments': int(sizes.argument_size_in_bytes),
      'results': int(sizes.output_size_in_bytes),
      'temporary': int(sizes.temp_size_in_bytes),
      'shared': int(sizes.alias_size_in_bytes),  # results that are arguments
      'device': device.memory,
    }
    counted = compiled.cost_analysis() or {}
    if 'flops' in counted:
      # Bytes of operands and results, a TPU's fast memory included.
      moved = counted['bytes accessed']
      costs = {'flops': counted['flops'], 'bytes': moved}
    error = too_large(program, device, memory)
  return {
    **stated(program),
    'program': program.kind,
    'precision': precision,
    'compiles': memory is not None,
    'error': error,
    'compile_seconds': round(time.perf_counter() - began, 1),
    'memory': memory,
    'costs': costs,
  }


def stated(program: Program) -> Record:
  """Return what a record has from the run, not from the compiler."""
  return {
    'stage': program.stage,
    'calls': program.calls,
    'clients_per_chunk': program.chunk,
    'images_per_step': program.chunk * program.batch,
  }


def resident(memory: dict[str, int]) -> int:
  """Return the bytes of arguments and results."""
  return memory['arguments'] + memory['results'] - memory['shared']


def too_large(program: Program, device: Device, memory: dict[str, int]) -> str:
  """Return why a program does not fit, which a GPU's compiler does not mind.

  Temporary memory grows with the clients side by side. The margin is that of
  'auto': a cohort that is no multiple of the chunk ends with a smaller one,
  which is a program of its own.
  """
  kept, temporary = resident(memory), memory['temporary']
  if kept + temporary <= device.memory:
    return ''
  each = max(temporary, 1) / max(program.chunk, 1)
  fits = int(MEMORY_SHARE * (device.memory - kept) / each)
  fits = min(fits, program.chunk - 1)
  way = 'a smaller batch_size or fewer clients may'
  if fits >= 1:
    way = f'clients_per_chunk={fits} may, for {program.chunk}'
  return (
    f'{(kept + temporary) / 2**30:.2f} GiB, {kept / 2**30:.2f} of them '
    f'arguments and results, do not fit the {device.memory / 2**30:.2f} of a '
    f'{device.name}; {way}'
  )
