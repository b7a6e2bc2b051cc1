"""Compile the programs of a config; say what each takes, in one record.

The numbers are XLA's own: `memory_analysis()` and, on a TPU, `cost_analysis()`,
which counts each loop once: of a round a step of all clients side by side, and
the work around it. A compiler for GPUs has none.
"""

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.errors import JaxRuntimeError
from jax.stages import Lowered

from experiments.accelerators.programs import Program, make_plan, make_programs
from experiments.accelerators.targets import Device, Where
from experiments.benchmarks.screen import WIDTH, number
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.report.text_table import align
from fedjax_pfl.training.build import Experiment

NOTE = (
  "The compiler's numbers, not measurements; memory in MiB. GFLOP and "
  'MB of a program count each of its loops once; a compiler for GPUs counts '
  'none.'
)

Record = dict[str, Any]  # of a program


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
  program: Program, lowered: Lowered, device: Device
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
      'arguments': sizes.argument_size_in_bytes,
      'results': sizes.output_size_in_bytes,
      'temporary': sizes.temp_size_in_bytes,
      'shared': sizes.alias_size_in_bytes,  # results that are arguments
      'device': device.memory,
    }
    counted = compiled.cost_analysis() or {}
    if 'flops' in counted:
      # Bytes of operands and results, a TPU's fast memory included.
      moved = counted['bytes accessed']
      costs = {'flops': counted['flops'], 'bytes': moved}
    error = too_large(device, memory)
  return {
    'program': f'{program.stage} {program.kind}',
    'calls': program.calls,
    'clients_per_chunk': program.chunk,
    'error': error,
    'compile_seconds': round(time.perf_counter() - began, 1),
    'memory': memory,
    'costs': costs,
  }


def resident(memory: dict[str, int]) -> int:
  """Return the bytes of arguments and results."""
  return memory['arguments'] + memory['results'] - memory['shared']


def too_large(device: Device, memory: dict[str, int]) -> str:
  """Return why a program does not fit, which a GPU's compiler does not mind."""
  kept = resident(memory)
  total = kept + memory['temporary']
  if total <= device.memory:
    return ''
  return (
    f'{total / 2**30:.2f} GiB, {kept / 2**30:.2f} of them arguments and '
    f'results, do not fit the {device.memory / 2**30:.2f} of a {device.name}; '
    'a smaller clients_per_chunk or batch_size may'
  )


# ---- what compile_for.py prints


def lines(
  where: Where, config: str, plan: Experiment, records: Sequence[Record]
) -> Iterator[str]:
  """Yield what is printed: title, table, remarks."""
  many = f' x {where.number}' if where.number > 1 else ''
  algorithm, model = plan.settings.algorithm, plan.settings.model
  title = (
    f'{config} on {where.device.name}{many} ({where.topology}): '
    f'{algorithm}, {model.name}, {model.precision}; jax {jax.__version__}'
  )
  for sentence in (title, plan.dataset.note):
    yield from textwrap.wrap(sentence, WIDTH)
  yield ''
  cells = [_cells(one) for one in records]
  yield align([(*cells[0],), *(tuple(own.values()) for own in cells)])
  for one in records:
    if one['error']:
      sentence = f'{one["program"]}: {one["error"]}'
      yield from textwrap.wrap(sentence, WIDTH, subsequent_indent='  ')
  yield ''
  yield from textwrap.wrap(NOTE, WIDTH)


def _cells(row: Record) -> dict[str, str]:
  """Return the cells of a program by their heads; sizes in MiB."""
  memory, costs = row['memory'] or {}, row['costs'] or {}

  def size(part):
    return f'{memory[part] / 2**20:,.1f}' if memory else ''

  used = ''
  if memory:
    used = (resident(memory) + memory['temporary']) / memory['device']
    used = f'{100 * used:.0f} %'
  return {
    'program': row['program'],
    'side by side': str(row['clients_per_chunk'] or ''),
    'seconds': number(row['compile_seconds']),
    'arguments': size('arguments'),
    'results': size('results'),
    'temporary': size('temporary'),
    'of device': used,
    'fits': 'no' if row['error'] else 'yes',
    'GFLOP': number(costs['flops'] / 1e9) if costs else '',
    'MB': number(costs['bytes'] / 1e6) if costs else '',
    'calls': f'{row["calls"]:,.0f}',
  }
