"""All that compile_for.py prints: programs of several configs, compiled."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from experiments.accelerators import kernels, screen, targets
from experiments.accelerators.compilation import (
  Compiled,
  compile_program,
  lower,
)
from experiments.accelerators.devices import Device
from experiments.accelerators.plan import Plan, make_plan
from experiments.accelerators.programs import KINDS, kinds_of, make_programs
from experiments.benchmarks.screen import WIDTH
from fedjax_pfl.core.errors import bad_input, check_known
from fedjax_pfl.core.target import compiling_for


class Where(NamedTuple):
  """What is compiled for."""

  platform: str  # 'tpu' or 'cuda'
  topology: str
  devices: int

  @property
  def device(self) -> Device:
    return targets.device_of(self.platform, self.topology)

  @property
  def kind(self) -> str:
    """Return the platform as core/target.py calls it."""
    return targets.KINDS[self.platform]


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
  num_kernels: int = 0,
) -> dict[str, Member]:
  """Return every config with its programs of these kinds, compiled.

  All configs are checked before the first is compiled.
  """
  plans = {label: plan_for(where, config) for label, config in members.items()}
  for plan in plans.values():
    check_has(plan, kinds)
  result = {}
  for label, plan in plans.items():
    log_member = partial(_log_with, log, label)
    programs = compile_plan(where, plan, kinds, log_member, num_kernels)
    result[label] = Member(plan, tuple(programs))
  return result


def plan_for(where: Where, config: Mapping[str, Any]) -> Plan:
  """Return the plan of a config, traced for the devices."""
  targets.devices_of(*where)  # refuses what is not there
  with compiling_for(where.kind, where.device.memory):
    return make_plan(config)


def compile_plan(
  where: Where,
  plan: Plan,
  kinds: Sequence[str],
  log: Callable[[str], None],
  num_kernels: int = 0,
) -> Iterator[Compiled]:
  """Yield the programs of these kinds, of all if there are none, compiled."""
  devices, device = targets.devices_of(*where), where.device
  precision = plan.settings.model.precision
  with compiling_for(where.kind, device.memory):
    for program in make_programs(plan, devices):
      if not kinds or program.kind in kinds:
        log(f'Compiling {program.kind} of {program.stage}')
        lowered = lower(program, device, where.kind)
        yield compile_program(program, lowered, device, precision, num_kernels)


def lines(
  where: Where, config: str, result: Mapping[str, Member]
) -> Iterator[str]:
  """Yield what is printed: title, tables, remarks, the forecast of a run."""
  many = f' x {where.devices}' if where.devices > 1 else ''
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
    (_label(label, compiled), compiled)
    for label, member in result.items()
    for compiled in member.programs
  ]
  yield from screen.tables(rows)
  for label, compiled in rows:
    if compiled.kernels:
      yield ''
      yield from kernels.lines(label, compiled.kernels)
  for label, member in result.items():
    if line := screen.run_line(member.programs):
      yield f'{label}: {line}' if label else f'{line[0].upper()}{line[1:]}'


def as_json(where: Where, result: Mapping[str, Member]) -> dict[str, Any]:
  """Return all numbers as one record."""
  device = where.device
  return {
    **where._asdict(),
    'device': device._asdict(),
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


def _log_with(log, label: str, text: str) -> None:
  log(f'{text} {label}'.rstrip())


def _label(choice: str, compiled: Compiled) -> str:
  program = compiled.program
  return ' '.join([*filter(None, [choice]), program.stage, program.kind])
