"""Sums over a program: its loops, its step, what all of it does.

A loop counts as often as it runs: where the compiler knows how often, it writes
that down (for a GPU) or the condition of the loop has it; else the caller says
it. The step is the innermost loop with most FLOPs: in a round, that of local
training.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from experiments.accelerators import hlo_costs
from experiments.accelerators.hlo_text import (
  TRIPS,
  Computation,
  Instruction,
  Module,
)

Trips = Callable[[Instruction], float]  # of a loop of unknown length


class Costs(NamedTuple):
  """What a part of a program does on one device."""

  kernels: float = 0
  flops: float = 0
  bytes: float = 0  # of the main memory
  cycles: float = 0  # as the TPU compiler estimates
  uncosted_bytes: float = 0  # of kernels without such an estimate

  def plus(self, other: 'Costs', times: float = 1) -> 'Costs':
    """Return self + times * other."""
    return Costs(*(a + times * b for a, b in zip(self, other, strict=True)))


def once(loop: Instruction) -> float:
  """Count a loop of unknown length as one run."""
  del loop
  return 1


def total(module: Module, trips: Trips = once, name: str = '') -> Costs:
  """Return the costs of a computation, by default of the whole program."""
  computation = module.computations[name or module.entry]
  costs = Costs()
  for instruction in computation.values():
    if instruction.op == 'conditional':
      branches = [total(module, trips, n) for n in instruction.calls()]
      costs = costs.plus(max(branches, key=lambda branch: branch.bytes))
    elif instruction.op in ('while', 'call', 'async-start'):
      times = times_of(instruction, module, trips)
      for called in instruction.calls():
        costs = costs.plus(total(module, trips, called), times)
    elif hlo_costs.is_kernel(instruction):
      costs = costs.plus(costs_of(instruction, computation, module))
  return costs


def times_of(instruction: Instruction, module: Module, trips: Trips) -> float:
  """Return how often its computations run; 1 of what is no loop."""
  if instruction.op != 'while':
    return 1
  known = TRIPS.search(instruction.attributes)
  number = int(known[1]) if known else _bound(instruction, module)
  return trips(instruction) if number is None else number


def step(module: Module) -> Costs | None:
  """Return the costs of the innermost loop with most FLOPs; None: no loop."""
  body = step_body(module)
  return total(module, name=body) if body else None


def step_body(module: Module) -> str | None:
  """Return the computation that is the step; None: no loop."""
  innermost = {
    body: total(module, name=body).flops
    for body in _loop_bodies(module)
    if not _has_heavy_loop(module, body)
  }
  return max(innermost, key=innermost.get, default=None)


def collectives(
  module: Module, trips: Trips = once
) -> dict[str, tuple[float, float]]:
  """Return {name: (how many, bytes on a device)}, in loops as often."""
  found: Counter = Counter()
  moved: Counter = Counter()
  _add_collectives(module, trips, module.entry, 1, found, moved)
  return {name: (found[name], moved[name]) for name in found}


def costs_of(
  instruction: Instruction, computation: Computation, module: Module
) -> Costs:
  """Return the costs of one kernel."""
  moved = hlo_costs.traffic(instruction, computation, module)
  flops = hlo_costs.flops(instruction, computation, module)
  cycles = instruction.cycles
  # What is moved behind other kernels (copy-start) takes no time of its own.
  hidden = cycles or instruction.op.endswith('-start')
  return Costs(1, flops, moved, cycles, 0 if hidden else moved)


def _bound(loop: Instruction, module: Module) -> int | None:
  """Return the constant below which its counter is; None: it is computed.

  JAX's loops count from 0, one by one.
  """
  (name,) = loop.calls('condition')
  condition = module.computations[name]
  (root,) = (one for one in condition.values() if one.is_root)
  if root.op != 'compare' or 'direction=LT' not in root.attributes:
    return None
  bound = condition[root.operands[1]]
  return int(bound.argument) if bound.op == 'constant' else None


def _loop_bodies(module: Module):
  for computation in module.computations.values():
    for instruction in computation.values():
      if instruction.op == 'while':
        yield from instruction.calls('body')


def _has_heavy_loop(module: Module, name: str) -> bool:
  """Return whether products are in a loop inside: it is no step then."""
  for instruction in module.computations[name].values():
    if instruction.op == 'while':
      (body,) = instruction.calls('body')
      found = total(module, name=body).flops > 0
    else:
      inner = instruction.calls() if instruction.op == 'call' else ()
      found = any(_has_heavy_loop(module, name) for name in inner)
    if found:
      return True
  return False


def _add_collectives(module, trips, name, times, found, moved):
  for instruction in module.computations[name].values():
    kind = hlo_costs.collective(instruction)
    if kind:
      found[kind] += times
      moved[kind] += times * hlo_costs.collective_bytes(instruction)
    elif instruction.op in ('while', 'call', 'conditional', 'async-start'):
      inner = times * times_of(instruction, module, trips)
      for called in instruction.calls():
        _add_collectives(module, trips, called, inner, found, moved)
