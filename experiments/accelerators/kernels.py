"""The kernels of a step that move most: where a program's bytes go."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.accelerators import hlo_costs, hlo_totals
from experiments.accelerators.hlo_text import Array, Instruction, Module
from experiments.accelerators.hlo_totals import Costs
from experiments.benchmarks.screen import columns, number

HEADS = ('kernel', 'MB', '%', 'GFLOP', 'reads', 'writes', 'operation')
SHOWN = 3  # arrays of a kernel, the largest ones


class Kernel(NamedTuple):
  """One kernel of a step."""

  name: str
  costs: Costs  # of all its runs in the step
  share: float  # of the bytes of the step
  reads: tuple[str, ...]  # its largest operands
  writes: tuple[str, ...]
  place: str  # the operation in the model, as 'jvp(ConvNet.features)/conv1'

  def as_json(self) -> dict[str, Any]:
    return {**self._asdict(), 'costs': self.costs._asdict()}


def largest(module: Module, most: int) -> list[Kernel]:
  """Return the kernels of the step by bytes; none without a loop."""
  body = hlo_totals.step_body(module)
  if body is None:
    return []
  whole = hlo_totals.total(module, name=body).bytes
  found = [
    _kernel(instruction, computation, module, times, whole)
    for instruction, computation, times in _kernels(module, body, 1)
  ]
  return sorted(found, key=lambda kernel: -kernel.costs.bytes)[:most]


def lines(title: str, kernels: Sequence[Kernel]) -> Iterator[str]:
  """Yield the printed table."""
  rows = [HEADS]
  for one in kernels:
    moved, flops = one.costs.bytes / 1e6, one.costs.flops / 1e9
    rows.append(
      (
        one.name,
        *(number(moved), f'{100 * one.share:.1f}'),
        number(flops) if flops else '',
        ' '.join(one.reads),
        ' '.join(one.writes),
        one.place,
      )
    )
  yield f'The largest kernels of {title}'
  yield from columns(rows, heads=1)


def _kernels(module: Module, name: str, times: float):
  """Yield (instruction, computation, how often it runs) of a computation."""
  computation = module.computations[name]
  for instruction in computation.values():
    if instruction.op in ('while', 'call', 'conditional', 'async-start'):
      inner = times * hlo_totals.times_of(instruction, module, hlo_totals.once)
      for called in instruction.calls():
        yield from _kernels(module, called, inner)
    elif hlo_costs.is_kernel(instruction):
      yield instruction, computation, times


def _kernel(instruction, computation, module, times, whole) -> Kernel:
  once = hlo_totals.costs_of(instruction, computation, module)
  costs = Costs().plus(once, times)
  operands = [
    array
    for name in instruction.operands
    if name in computation
    for array in computation[name].results
  ]
  return Kernel(
    instruction.name,
    costs,
    costs.bytes / whole if whole else 0,
    _names(operands),
    _names(instruction.results),
    _place(instruction),
  )


def _names(arrays: Sequence[Array]) -> tuple[str, ...]:
  ordered = sorted(arrays, key=lambda array: -array.nbytes)
  return tuple(
    f'{array.dtype}[{",".join(map(str, array.shape))}]'
    for array in ordered[:SHOWN]
  )


def _place(instruction: Instruction) -> str:
  """Return the operation that it computes, or one of those that it fuses."""
  name = instruction.attribute(r'op_name="([^"]*)"') or instruction.op
  return name.rpartition('/body/')[2]
