"""All that compile_for.py prints: programs of several configs, compiled."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from experiments.accelerators.compilation import (
  Compiled,
  compile_program,
  traced_programs,
)
from experiments.accelerators.plan import Plan, make_plan
from experiments.accelerators.programs import KINDS, kinds_of
from experiments.accelerators.targets import Where
from experiments.benchmarks.screen import WIDTH, columns, number
from fedjax_pfl.core.errors import bad_input, check_known
from fedjax_pfl.core.target import compiling_for

HEADS = (
  *('clients\nside by side', 'compiled\nin s', 'arguments\nMiB'),
  *('results\nMiB', 'temporary\nMiB', 'of the\ndevice', '\nfits'),
  *('\nGFLOP', '\nMB', '\ncalls'),
)
NOTE = (
  "The compiler's numbers, not measurements. GFLOP and MB of a program count "
  'each of its loops once; a compiler for GPUs counts none.'
)


class Member(NamedTuple):
  """One config, and its compiled programs."""

  plan: Plan
  programs: tuple[Compiled, ...]


def check_kinds(kinds: Sequence[str]) -> None:
  """Refuse programs that no run has."""
  check_known(
    'programs',
    kinds,
    expected='programs of a run',
    choices=KINDS,
    cause='a typing error',
  )


def check_has(plan: Plan, kinds: Sequence[str]) -> None:
  """Refuse kinds of which this run has no program."""
  if kinds and not {*kinds} & {*kinds_of(plan)}:
    raise bad_input(
      'programs',
      got=','.join(kinds),
      expected=f'programs of {plan.settings.algorithm}',
      choices=kinds_of(plan),
      cause='a method of one stage, or without data of its own, or a config '
      'without views',
    )


def compile_all(
  where: Where,
  members: Mapping[str, Mapping[str, Any]],
  kinds: Sequence[str],
  log: Callable[[str], None],
) -> dict[str, Member]:
  """Return every config with its programs of these kinds, compiled.

  All configs are checked before the first is compiled.
  """
  plans = {label: plan_for(where, config) for label, config in members.items()}
  for plan in plans.values():
    check_has(plan, kinds)
  result = {}
  for label, plan in plans.items():
    compiled = []
    for program, traced in traced_programs(where, plan):
      if not kinds or program.kind in kinds:
        log(f'Compiling {program.kind} of {program.stage} {label}'.rstrip())
        precision = plan.settings.model.precision
        compiled.append(
          compile_program(program, traced, where.device, precision)
        )
    result[label] = Member(plan, tuple(compiled))
  return result


def plan_for(where: Where, config: Mapping[str, Any]) -> Plan:
  """Return the plan of a config, traced for the devices."""
  _ = where.devices  # refuses what is not there
  with compiling_for(where.kind, where.device.memory):
    return make_plan(config)


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
  yield from textwrap.wrap(title, WIDTH)
  notes = {note for member in result.values() for note in member.plan.notes}
  for note in sorted(notes):
    yield from textwrap.wrap(note, WIDTH)
  yield ''
  rows = [
    (f'{label} {one.program.stage} {one.program.kind}'.strip(), one)
    for label, member in result.items()
    for one in member.programs
  ]
  heads = [*zip(*(h.split('\n') for h in ('\n', *HEADS)), strict=True)]
  yield from columns(
    [*heads, *((label, *_cells(one)) for label, one in rows)], heads=2
  )
  for label, one in rows:
    if one.error:
      yield from textwrap.wrap(
        f'{label}: {one.error}', WIDTH, subsequent_indent='  '
      )
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
        'notes': member.plan.notes,
        'programs': [compiled.as_json() for compiled in member.programs],
      }
      for label, member in result.items()
    ],
  }


def has_failed(result: Mapping[str, Member]) -> bool:
  """Return whether a program did not compile or does not fit."""
  return any(row.error for member in result.values() for row in member.programs)


def _cells(row: Compiled) -> tuple[str, ...]:
  program, memory, costs = row.program, row.memory, row.costs
  chunk = str(program.chunk) if program.chunk else ''
  sizes, share = ('', '', ''), ''
  if memory is not None:
    sizes = [f'{part / 2**20:,.1f}' for part in memory[:3]]
    share = f'{100 * memory.total / row.device.memory:.0f} %'
  work = ('', '')
  if costs is not None:
    work = number(costs.flops / 1e9), number(costs.bytes / 1e6)
  fits = 'no' if row.error else 'yes'
  calls = f'{program.calls:,.0f}'
  return chunk, number(row.seconds), *sizes, share, fits, *work, calls
