"""Compile a program; say what it takes, by the compiler's own numbers.

`cost_analysis()` counts each loop once: of a round a step of all clients side
by side, and the work around it. A compiler for GPUs has none.
"""

import collections
import math
import re
import time

from jax.errors import JaxRuntimeError
from jax.stages import Lowered

from experiments.accelerators.programs import Program
from experiments.accelerators.targets import Device
from experiments.benchmarks.screen import number
from fedjax_pfl.core.target import compiler_options

MIB, GIB = 2**20, 2**30
HEADS = (
  *('program', 'side by side', 'seconds', 'arguments', 'results', 'temporary'),
  *('of device', 'fits', 'kernels', 'GFLOP', 'MB', 'moved'),
)
INSTRUCTION = re.compile(r'\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z][\w\-]*)\(')
# Of instructions, what runs inside of their own kernel.
INSIDE = re.compile(r'(?:calls|to_apply|select|scatter)=%?([\w.\-]+)')
MOVED = re.compile(
  r' = (.*?) (?:all-\w+|reduce-scatter|collective-permute)(-start)?\('
)
ARRAY = re.compile(r'([a-z]+)(\d*)\[([\d,]*)\]')
# They launch nothing themselves.
FREE = {
  *('parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast'),
  *('while', 'conditional', 'call', 'after-all', 'copy-done'),
}


def compile_program(
  program: Program, lowered: Lowered, device: Device
) -> tuple[dict[str, str], str]:
  """Return its cells by `HEADS`, and an error, also if it does not fit."""
  began, error = time.perf_counter(), ''
  cells = dict.fromkeys(HEADS, '') | {'program': program.name}
  try:
    compiled = lowered.compile(compiler_options=compiler_options())
  except JaxRuntimeError as exception:
    error, *_ = [*str(exception).strip().splitlines(), 'no reason is given']
  else:
    sizes = compiled.memory_analysis()
    own = {
      'arguments': sizes.argument_size_in_bytes,
      'results': sizes.output_size_in_bytes,
      'temporary': sizes.temp_size_in_bytes,
    }
    cells |= {name: f'{size / MIB:,.1f}' for name, size in own.items()}
    used = sum(own.values()) - sizes.alias_size_in_bytes  # counted twice
    cells['of device'] = f'{100 * used / device.memory:.0f} %'
    if used > device.memory:  # a GPU's compiler does not mind
      error = f'needs {used / GIB:.2f} of {device.memory / GIB:.2f} GiB'
    text = compiled.as_text() or ''
    cells['kernels'] = f'{count_kernels(text):,}'
    if moved := collectives(text):
      cells['moved'] = f'{sum(moved) / 1e6:.2f} MB in {len(moved)}'
    counted = compiled.cost_analysis() or {}
    if 'flops' in counted:  # bytes: a TPU's fast memory included
      cells['GFLOP'] = number(counted['flops'] / 1e9)
      cells['MB'] = number(counted['bytes accessed'] / 1e6)
  cells['seconds'] = number(time.perf_counter() - began)
  cells['side by side'] = f'{program.chunk}'
  return cells | {'fits': 'no' if error else 'yes'}, error


def count_kernels(text: str) -> int:
  """Return how many kernels a compiled program has; each loop counts once."""
  found, inside, name = collections.Counter(), set(), ''
  for line in text.splitlines():
    if match := INSTRUCTION.match(line):
      found[name] += match[1] not in FREE
      inside |= {*INSIDE.findall(line)} if match[1] != 'call' else set()
    elif line.endswith('{'):
      name = line.removeprefix('ENTRY ').split()[0].removeprefix('%')
  return sum(n for name, n in found.items() if name not in inside)


def collectives(text: str) -> list[int]:
  """Return the bytes that arrive by each collective; each loop counts once."""
  moved = []
  for match in MOVED.finditer(text):
    arrays = [
      int(bits or 8) // 8 * math.prod(map(int, filter(None, sides.split(','))))
      for _, bits, sides in ARRAY.findall(match[1])
    ]
    # What starts an all-gather has its arguments beside its results.
    is_pair = 'all-gather-start' in match[0] or 'permute-start' in match[0]
    moved.append(sum(arrays[len(arrays) // 2 :] if is_pair else arrays))
  return moved
