"""Compile the programs of a config; say what each takes, in one record.

The numbers are XLA's own: `memory_analysis()` and, on a TPU, `cost_analysis()`,
which counts each loop once: of a round a step of all clients side by side, and
the work around it. A compiler for GPUs has none.
"""

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.errors import JaxRuntimeError
from jax.stages import Lowered

from experiments.accelerators.programs import (
  KINDS,
  Program,
  make_plan,
  make_programs,
)
from experiments.accelerators.targets import Device, Where
from experiments.benchmarks.screen import WIDTH, columns, number
from fedjax_pfl.core.errors import bad_input, check_known
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.federated.chunking import MEMORY_SHARE
from fedjax_pfl.training.build import Experiment

NOTE = (
  "The compiler's numbers, not measurements. GFLOP and MB of a program count "
  'each of its loops once; a compiler for GPUs counts none.'
)

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


# ---- what compile_for.py prints


class Member(NamedTuple):
  """One config, and its compiled programs."""

  plan: Experiment
  programs: tuple[Record, ...]


def compile_all(
  where: Where,
  members: Mapping[str, Mapping[str, Any]],
  kinds: Sequence[str],
  log: Callable[[str], None],
) -> dict[str, Member]:
  """Return every config with its programs of these kinds, compiled.

  All configs are checked before the first is compiled.
  """
  check_known(
    'programs',
    kinds,
    expected='programs of a run',
    choices=KINDS,
    cause='a typing error',
  )
  plans = {label: plan_for(where, config) for label, config in members.items()}
  found = {}
  for label, plan in plans.items():
    compiled, precision = [], plan.settings.model.precision
    for program, lowered in lowered_programs(where, plan):
      if not kinds or program.kind in kinds:
        log(f'Compiling {program.kind} of {program.stage} {label}'.rstrip())
        compiled.append(
          compile_program(program, lowered, where.device, precision)
        )
    if not compiled:
      raise bad_input(
        'programs',
        got=','.join(kinds),
        expected=f'programs of {plan.settings.algorithm}',
        choices=KINDS,
        cause='a method of one stage, or without data of its own, or a config '
        'without views',
      )
    found[label] = Member(plan, tuple(compiled))
  return found


def lines(
  where: Where, config: str, result: Mapping[str, Member]
) -> Iterator[str]:
  """Yield what is printed: title, table, remarks."""
  many = f' x {where.number}' if where.number > 1 else ''
  first = next(iter(result.values())).plan.settings
  title = (
    f'{config} on {where.device.name}{many} ({where.topology}): '
    f'{first.algorithm}, {first.model.name}, {first.model.precision}; '
    f'jax {jax.__version__}'
  )
  notes = {member.plan.dataset.note for member in result.values()}
  for sentence in (title, *sorted(notes)):
    yield from textwrap.wrap(sentence, WIDTH)
  yield ''
  rows = {
    f'{label} {one["stage"]} {one["program"]}'.strip(): one
    for label, member in result.items()
    for one in member.programs
  }
  yield from columns({'\n': name, **_cells(one)} for name, one in rows.items())
  for name, one in rows.items():
    if one['error']:
      sentence = f'{name}: {one["error"]}'
      yield from textwrap.wrap(sentence, WIDTH, subsequent_indent='  ')
  yield ''
  yield from textwrap.wrap(NOTE, WIDTH)


def as_json(where: Where, result: Mapping[str, Member]) -> dict[str, Any]:
  """Return all numbers as one record."""
  return {
    'platform': where.platform,
    'topology': where.topology,
    'devices': where.number,
    'device': where.device._asdict(),
    'jax': jax.__version__,
    'members': [
      {
        'choice': label,
        'algorithm': member.plan.settings.algorithm,
        'model': member.plan.settings.model.name,
        'note': member.plan.dataset.note,
        'programs': member.programs,
      }
      for label, member in result.items()
    ],
  }


def _cells(row: Record) -> dict[str, str]:
  """Return the cells of a program by their heads, in two lines."""
  memory, costs = row['memory'] or {}, row['costs'] or {}

  def size(part):
    return f'{memory[part] / 2**20:,.1f}' if memory else ''

  used = ''
  if memory:
    used = (resident(memory) + memory['temporary']) / memory['device']
    used = f'{100 * used:.0f} %'
  return {
    'clients\nside by side': str(row['clients_per_chunk'] or ''),
    'compiled\nin s': number(row['compile_seconds']),
    'arguments\nMiB': size('arguments'),
    'results\nMiB': size('results'),
    'temporary\nMiB': size('temporary'),
    'of the\ndevice': used,
    '\nfits': 'no' if row['error'] else 'yes',
    '\nGFLOP': number(costs['flops'] / 1e9) if costs else '',
    '\nMB': number(costs['bytes'] / 1e6) if costs else '',
    '\ncalls': f'{row["calls"]:,.0f}',
  }
