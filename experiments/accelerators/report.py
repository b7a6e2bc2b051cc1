"""All that compile_for.py prints: programs of several configs, compiled."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from experiments.accelerators.compilation import (
  Record,
  compile_program,
  lowered_programs,
  plan_for,
  resident,
)
from experiments.accelerators.programs import KINDS
from experiments.accelerators.targets import Where
from experiments.benchmarks.screen import WIDTH, columns, number
from fedjax_pfl.core.errors import bad_input, check_known
from fedjax_pfl.training.build import Experiment

NOTE = (
  "The compiler's numbers, not measurements. GFLOP and MB of a program count "
  'each of its loops once; a compiler for GPUs counts none.'
)


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
