"""The sentence about a program that does not fit a device, or not compile."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from experiments.accelerators.programs import Program
from experiments.accelerators.targets import Device
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.federated.chunking import MEMORY_SHARE

UNITS = {'B': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
# What the TPU compiler writes if its device is too small.
EXCEEDED = re.compile(r'HLO temporaries \(([\d.]+)([BKMGT])\) exceeds')


class Largest(NamedTuple):
  """The array of a program that takes most memory."""

  shape: str  # 'float32[50,32,32,64]'
  place: str  # an argument's name, or the operation that computes it
  nbytes: int


def why_not(
  error: Exception, jaxpr: ClosedJaxpr, program: Program, device: Device
) -> str:
  """Return the sentence about a program that the compiler refused."""
  text = str(error).strip()
  exceeded = EXCEEDED.search(text)
  if exceeded:
    resident = sum(array.nbytes for array in _arguments(program))
    temporary = int(float(exceeded[1]) * UNITS[exceeded[2]])
    return sentence(program, jaxpr, device, resident + temporary, resident)
  return str(
    bad_input(
      'compiler',
      got=text.splitlines()[0] if text else 'an error without a reason',
      expected=f'a program for {_named(program)} that it compiles',
      cause='an operation, or a size, that this compiler cannot do on the '
      'device',
    )
  )


def sentence(
  program: Program,
  jaxpr: ClosedJaxpr,
  device: Device,
  used: int,
  resident: int,
) -> str:
  """Return the sentence about a program that takes more than the device has."""
  arrays = [*_arguments(program), *_computed(jaxpr.jaxpr)]
  largest = max(arrays, key=lambda array: array.nbytes)
  number = fitting_chunk(used, resident, program.chunk, device)
  if program.chunk <= 1 or number < 1:
    choices = ['a smaller batch_size', 'fewer clients', 'another device']
  else:
    fits = min(number, program.chunk - 1)
    choices = [
      f'clients_per_chunk={fits}, as far as memory grows with the clients side '
      'by side'
    ]
  return str(
    bad_input(
      'memory',
      got=f'{_gib(used)} for {_named(program)}; the largest array, '
      f'{largest.shape} of {largest.place}, has {_gib(largest.nbytes)}',
      expected=f'at most the {_gib(device.memory)} of a {device.name}',
      choices=choices,
      cause='clients side by side, or the states of all clients',
    )
  )


def fitting_chunk(used: int, resident: int, chunk: int, device: Device) -> int:
  """Return how many clients fit: what is not resident grows with the chunk.

  With the margin of 'auto': a cohort that is no multiple of the chunk ends with
  a smaller one, which is a program of its own.

  >>> fitting_chunk(150, resident=50, chunk=10, device=Device('small', 100))
  4
  """
  each = max(used - resident, 1) / max(chunk, 1)
  return max(int(MEMORY_SHARE * (device.memory - resident) / each), 0)


def _named(program: Program) -> str:
  side = f' with {program.chunk} clients side by side' if program.chunk else ''
  return f'the {program.kind} of {program.stage}{side}'


def _arguments(program: Program) -> Iterator[Largest]:
  named = dict(zip(program.names, program.arguments, strict=True))
  paths, _ = jax.tree.flatten_with_path(named)
  for path, leaf in paths:
    name = jax.tree_util.keystr(path, simple=True, separator='.')
    yield _array(leaf, f'the argument {name}')


def _computed(jaxpr: Jaxpr) -> Iterator[Largest]:
  """Yield the results of all operations, before the compiler fuses any."""
  for equation in jaxpr.eqns:
    for result in equation.outvars:
      if hasattr(result.aval, 'shape'):
        yield _array(result.aval, equation.primitive.name)
    for part in jax.tree.leaves(
      [*equation.params.values()],
      is_leaf=lambda value: isinstance(value, ClosedJaxpr | Jaxpr),
    ):
      if isinstance(part, ClosedJaxpr | Jaxpr):
        yield from _computed(getattr(part, 'jaxpr', part))


def _array(aval, place: str) -> Largest:
  shape = ','.join(map(str, aval.shape))
  return Largest(
    f'{aval.dtype}[{shape}]', place, aval.size * aval.dtype.itemsize
  )


def _gib(number: float) -> str:
  return f'{number / 2**30:.2f} GiB'
