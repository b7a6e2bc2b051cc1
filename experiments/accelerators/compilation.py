"""Compile a program for a device that is not there; say what it takes.

Devices are in devices.toml. The numbers are the compiler's own:
`cost_analysis()` counts each loop once, of a round a step of all clients side
by side, and the work around it. A compiler for GPUs has none.
"""

import collections
import math
import re
import time
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from jax.errors import JaxRuntimeError
from jax.experimental.topologies import get_topology_desc
from jax.stages import Lowered

from experiments.accelerators.programs import Program
from experiments.benchmarks.screen import number
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.target import compiler_options

FOLDER = Path(__file__).parent
PACKAGES = {  # that compile for a kind of device
  'gpu': 'jax-cuda13-pjrt jax-cuda13-plugin nvidia-cuda-nvcc nvidia-nvvm',
  'tpu': 'libtpu',
}
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


class Device(NamedTuple):
  """A chip, as `jax.devices()` counts them."""

  kind: str
  topology: str
  name: str
  memory: int  # bytes that programs can use
  number: int  # of the topology


LISTED = tomllib.loads((FOLDER / 'devices.toml').read_text('utf-8'))
DEVICES = {name: Device(**fields) for name, fields in LISTED.items()}


def find_device(text: str) -> tuple[Device, int]:
  """Return a device and how many; refuse what is unknown or cannot compile."""
  name, _, asked = text.partition(':')
  one_of(DEVICES, 'a device', 'a typing error').check('device', name)
  if missing := missing_packages(name):
    got, expected = ', '.join(missing), 'the packages that compile for it'
    choices = ['make accelerators, which installs them; no device is needed']
    how = {'got': f'{name} without {got}', 'expected': expected}
    raise bad_input('device', **how, choices=choices)
  numbers = [*map(str, range(1, DEVICES[name].number + 1))]
  is_there = f'a number of devices, up to {numbers[-1]}'
  one_of(numbers, is_there).check('device', asked or '1')
  return DEVICES[name], int(asked or 1)


def missing_packages(name: str) -> list[str]:
  own = PACKAGES[DEVICES[name].kind].split()
  return [one for one in own if not [*metadata.distributions(name=one)]]


def describe(device: Device, number: int = 1) -> list[Any]:
  """Return the first devices of the topology for jax's compiler."""
  name, platform, more = device.topology, 'tpu', {}
  if device.kind == 'gpu':
    name, platform = 'h100', 'cuda'
    more['target_config'] = (FOLDER / 'h100.txtpb').read_text('utf-8')
    more['topology'] = device.topology
  elif name.startswith('v4'):  # its two cores are used as one device
    more['chip_config_name'] = 'megacore'
  return get_topology_desc(name, platform, **more).devices[:number]


def compile_program(
  program: Program, lowered: Lowered, device: Device
) -> tuple[dict[str, str], str]:
  """Return its cells by `HEADS`, and an error, also if it does not fit."""
  began, error = time.perf_counter(), ''
  cells = dict.fromkeys(HEADS, '') | {'program': program.name}
  cells['side by side'] = f'{program.chunk}'
  try:
    compiled = lowered.compile(compiler_options=compiler_options())
  except JaxRuntimeError as exception:
    error, *_ = [*str(exception).strip().splitlines(), 'no reason is given']
  else:
    sizes = compiled.memory_analysis()
    own = sizes.argument_size_in_bytes, sizes.output_size_in_bytes
    own = *own, sizes.temp_size_in_bytes
    cells |= zip(HEADS[3:6], (f'{x / MIB:,.1f}' for x in own), strict=True)
    used = sum(own) - sizes.alias_size_in_bytes  # counted twice
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
