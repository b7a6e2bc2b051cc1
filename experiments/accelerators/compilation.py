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
  *('of device', 'fits', 'kernels', 'GFLOP', 'MB', 'collectives'),
)
INSTRUCTION = re.compile(r'\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z][\w\-]*)\(')
# Of instructions, what runs inside of their own kernel.
INSIDE = re.compile(r'(?:calls|to_apply|select|scatter)=%?([\w.\-]+)')
MOVED = re.compile(
  r' = (.*?) (?:all-\w+|reduce-scatter|collective-permute)(-start)?\('
)
# A TPU's compiler writes a collective into each kernel beside which it runs.
BESIDE, START = 'chain_id=', 'AsyncCollectiveStart'
ARRAY = re.compile(r'([a-z]+)(\d*)\[([\d,]*)\]')
# What runs each time that an instruction does, and how often a loop runs.
CALLED = re.compile(r'(?:calls|to_apply|body|_computations)=(\{.*?\}|[^,]+)')
LOOP = re.compile(r' while\(.* condition=%?([\w.\-]+), body=%?([\w.\-]+)')
TURNS = re.compile(r'known_trip_count":\{"n":"(\d+)')
CONSTANT = re.compile(r'%(\S+) = [su]\d+\[\]\S* constant\((\d+)\)')
NAME = re.compile(r'[\w.\-]+')
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
    if any(moved := collectives(text)):
      cells['collectives'] = ', '.join(
        f'{len(arrays):,} a {part} ({sum(arrays) / 1e6:,.2f} MB)'
        for part, arrays in zip(('step', 'round'), moved, strict=True)
      )
    counted = compiled.cost_analysis() or {}
    if 'flops' in counted:  # bytes: a TPU's fast memory included
      cells['GFLOP'] = number(counted['flops'] / 1e9)
      cells['MB'] = number(counted['bytes accessed'] / 1e6)
  cells['seconds'] = number(time.perf_counter() - began)
  return cells | {'fits': 'no' if error else 'yes'}, error


def computations(text: str) -> dict[str, list[str]]:
  """Return the lines of each computation of a program; '' is the whole one."""
  lines_of, lines = {}, []
  for line in text.splitlines():
    if line.endswith('{'):
      name = '' if line.startswith('ENTRY ') else NAME.search(line)[0]
      lines = lines_of[name] = []
    else:
      lines.append(line)
  return lines_of


def count_kernels(text: str) -> int:
  """Return how many kernels a compiled program has; each loop counts once."""
  found, inside = collections.Counter(), set()
  for name, lines in computations(text).items():
    for match in filter(None, map(INSTRUCTION.match, lines)):
      found[name] += match[1] not in FREE
      called = INSIDE.findall(match.string)
      inside |= {*called} if match[1] != 'call' else set()
  return sum(n for name, n in found.items() if name not in inside)


def collectives(text: str) -> tuple[list[int], list[int]]:
  """Return the bytes of each collective of a step, and of a round besides.

  A step is a turn of a loop whose number of turns depends on the data. Of the
  others each counts as often as its loops run.
  """
  lines_of, of_step, of_round = computations(text), [], []

  def visit(name, moved, times):
    lines = lines_of.get(name, [])
    starts = any(START in line for line in lines)
    for line in lines:
      if (match := MOVED.search(line)) and (starts or BESIDE not in line):
        moved += [whole_bytes(match)] * times
      count = turns(line, lines_of) if LOOP.search(line) else 1
      inside = (moved, times * count) if count else (of_step, 1)
      for called in NAME.findall(' '.join(CALLED.findall(line))):
        visit(called, *inside)

  visit('', of_round, 1)
  return of_step, of_round


def turns(loop: str, lines_of: dict[str, list[str]]) -> int | None:
  """Return how often a loop runs; None if that depends on the data.

  A TPU's compiler does not say it: the first number of the state is compared
  with a constant, and what is added to it is one.
  """
  if known := TURNS.search(loop):
    return int(known[1])
  condition, body = map(
    '\n'.join, map(lines_of.get, LOOP.search(loop).groups())
  )
  if not (end := CONSTANT.search(condition)):
    return None
  place = re.search(r'\), index=(\d+)', condition)
  state, step = re.search(r'ROOT .* tuple\((.*)\)', body), 1
  if place and state:
    counter = re.escape(re.findall(r'%([\w.\-]+)', state[1])[int(place[1])])
    added = re.search(rf'%{counter} = .* add\(%\S+, %([\w.\-]+)\)', body)
    step = int(dict(CONSTANT.findall(body)).get(added and added[1], 1))
  return -(-int(end[2]) // step)


def whole_bytes(collective: re.Match) -> int:
  """Return the bytes of the arrays that it joins, sums or deals out."""
  arrays = ARRAY.findall(collective[1])
  if collective[2] and arrays[-2:] == [('u', '32', '')] * 2:
    arrays = arrays[:-2]  # by which a permutation knows that it is done
  sizes = [
    int(bits or 8) // 8 * math.prod(map(int, filter(None, sides.split(','))))
    for _, bits, sides in arrays
  ]
  if 'all-reduce' in collective[0] or not collective[2]:
    return sum(sizes)
  half = len(sizes) // 2  # what starts one has arguments, then results
  return max(sum(sizes[:half]), sum(sizes[half:]))
