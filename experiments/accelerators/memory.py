"""The memory of a compiled program, and why one does not fit a device."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from experiments.accelerators.devices import Device
from experiments.accelerators.hlo_text import Module
from experiments.accelerators.programs import Program
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.federated.chunking import MEMORY_SHARE

UNITS = {'B': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
# What the TPU compiler writes if its device is too small.
EXCEEDED = re.compile(r'HLO temporaries \(([\d.]+)([BKMGT])\) exceeds')
# The result of an operation of a lowered program.
TENSOR = re.compile(r'= "?stablehlo\.(\w+).*(?:->|:) tensor<((?:\d+x)+)(\w+)>')
WIDTHS = re.compile(r'\d+')


class Memory(NamedTuple):
  """Bytes of a program on one device."""

  arguments: int
  results: int
  temporary: int
  shared: int  # of results that lie where arguments were

  @property
  def total(self) -> int:
    return self.arguments + self.results + self.temporary - self.shared


class Largest(NamedTuple):
  """The array of a program that takes most memory."""

  shape: str  # 'f32[50,32,32,64]'
  place: str  # an argument's name, or the operation that computes it
  nbytes: int


def memory_of(compiled: Any) -> Memory:
  """Return the memory of what jax compiled."""
  found = compiled.memory_analysis()
  return Memory(
    int(found.argument_size_in_bytes),
    int(found.output_size_in_bytes),
    int(found.temp_size_in_bytes),
    int(found.alias_size_in_bytes),
  )


def too_much(
  used: Memory, module: Module, program: Program, device: Device
) -> str:
  """Return the sentence about a program larger than its device; '' if it fits.

  A compiler for GPUs does not mind.
  """
  if used.total <= device.memory:
    return ''
  candidates = [*_arguments(program), *_computed(module)]
  largest = max(candidates, key=lambda array: array.nbytes)
  resident = used.arguments + used.results - used.shared
  return str(_does_not_fit(program, device, used.total, resident, largest))


def why_not(
  error: Exception, lowered: str, program: Program, device: Device
) -> str:
  """Return the sentence about a program that the compiler refused.

  `lowered` is its text before the compiler: where memory is too small, the
  largest array is looked up there, since the compiler names none.
  """
  text = str(error).strip()
  exceeded = EXCEEDED.search(text)
  if not exceeded:
    return str(_does_not_compile(program, text))
  arrays = [*_arguments(program), *_lowered(lowered)]
  largest = max(arrays, key=lambda array: array.nbytes)
  resident = sum(array.nbytes for array in _arguments(program))
  temporary = int(float(exceeded[1]) * UNITS[exceeded[2]])
  used = resident + temporary
  return str(_does_not_fit(program, device, used, resident, largest))


def fitting_chunk(used: int, resident: int, chunk: int, device: Device) -> int:
  """Return how many clients fit: what is not resident grows with the chunk.

  With the margin of 'auto': a cohort that is no multiple of the chunk ends with
  a smaller one, which is a program of its own.

  >>> v5e = DEVICES['v5e']._replace(memory=100)
  >>> fitting_chunk(used=150, resident=50, chunk=10, device=v5e)
  4
  """
  each = max(used - resident, 1) / max(chunk, 1)
  return max(int(MEMORY_SHARE * (device.memory - resident) / each), 0)


def _does_not_fit(program, device, used, resident, largest) -> Exception:
  number = fitting_chunk(used, resident, program.chunk, device)
  if program.chunk <= 1 or number < 1:
    choices = ['a smaller batch_size', 'fewer clients', 'another device']
  else:
    fits = min(number, program.chunk - 1)
    choices = [
      f'clients_per_chunk={fits}, as far as memory grows with the clients side '
      'by side'
    ]
  return bad_input(
    'memory',
    got=f'{gib(used)} for {_named(program)}; the largest array, '
    f'{largest.shape} of {largest.place}, has {gib(largest.nbytes)}',
    expected=f'at most the {gib(device.memory)} of a {device.name}',
    choices=choices,
    cause='clients side by side, or the states of all clients',
  )


def _does_not_compile(program: Program, text: str) -> Exception:
  return bad_input(
    'compiler',
    got=text.splitlines()[0] if text else 'an error without a reason',
    expected=f'a program for {_named(program)} that it compiles',
    cause='an operation, or a size, that this compiler cannot do on the device',
  )


def _named(program: Program) -> str:
  side = f' with {program.chunk} clients side by side' if program.chunk else ''
  return f'the {program.kind} of {program.stage}{side}'


def _arguments(program: Program) -> Iterator[Largest]:
  named = dict(zip(program.names, program.arguments, strict=True))
  paths, _ = jax.tree.flatten_with_path(named)
  for path, leaf in paths:
    shape = ','.join(map(str, leaf.shape))
    yield Largest(
      f'{leaf.dtype}[{shape}]',
      f'the argument {jax.tree_util.keystr(path, simple=True, separator=".")}',
      leaf.size * leaf.dtype.itemsize,
    )


def _computed(module: Module) -> Iterator[Largest]:
  """Yield the results of all that runs by itself, not inside of a fusion."""
  fused = {
    name
    for computation in module.computations.values()
    for instruction in computation.values()
    if instruction.op == 'fusion'
    for name in instruction.calls()
  }
  for name, computation in module.computations.items():
    for instruction in computation.values() if name not in fused else ():
      place = instruction.attribute(r'op_name="([^"]*)"') or instruction.op
      for array in instruction.results:
        shape = ','.join(map(str, array.shape))
        yield Largest(f'{array.dtype}[{shape}]', place, array.nbytes)


def _lowered(text: str) -> Iterator[Largest]:
  """Yield the results of the operations of a lowered program, not padded."""
  for operation, sizes, dtype in TENSOR.findall(text):
    shape = [int(size) for size in sizes.split('x') if size]
    bits = int((WIDTHS.findall(dtype) or ['8'])[-1])
    nbytes = math.prod(shape) * max(bits, 8) // 8
    yield Largest(f'{dtype}{shape}'.replace(' ', ''), operation, nbytes)


def gib(number: float) -> str:
  return f'{number / 2**30:.2f} GiB'
