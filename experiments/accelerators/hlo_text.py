"""Read the text of an optimised HLO module: what a compiled program runs.

One instruction a line, in computations of their own:

  %fusion.3 = f32[50,64]{1,0:T(8,128)} fusion(%p.1, %p.2), kind=kLoop, calls=..

S(n) in a layout is a memory other than the device's main one (0); T(..) are the
tiles in which a TPU stores the last axes, padded to whole ones.
"""

import math
import re
from typing import NamedTuple

BYTES = {
  **dict.fromkeys(('pred', 's8', 'u8', 's4', 'u4'), 1),
  **dict.fromkeys(('f8e4m3fn', 'f8e5m2'), 1),
  **dict.fromkeys(('s16', 'u16', 'f16', 'bf16'), 2),
  **dict.fromkeys(('s32', 'u32', 'f32'), 4),
  **dict.fromkeys(('s64', 'u64', 'f64', 'c64'), 8),
  **{'c128': 16, 'token': 0},
}
COMPUTATION = re.compile(r'(ENTRY )?%?([\w.\-]+) \(?.*\{$')
RESULT = re.compile(r'\s+(ROOT )?%?([\w.\-]+) = ')
ARRAY = re.compile(r'(\w+)\[([\d,<=]*)\]')
OPCODE = re.compile(r' ([\w\-]+)\(')
CALLED = re.compile(r'(calls|body|condition|to_apply)=%?([\w.\-]+)')
BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
TABLE_LINE = re.compile(r'(\d+) (?:"(.*)"|\{(.*)\})')


class Array(NamedTuple):
  """An operand or a result."""

  dtype: str
  shape: tuple[int, ...]
  layout: str = ''

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def space(self) -> int:
    """Return the number of its memory; 0: the main memory of the device."""
    found = re.search(r'S\((\d+)\)', self.layout)
    return int(found[1]) if found else 0

  @property
  def nbytes(self) -> int:
    """Return the bytes, with those that a TPU's tiles add.

    >>> Array('f32', (50, 3), '{1,0:T(8,128)}').nbytes == 4 * 56 * 128
    True
    """
    each = BYTES.get(self.dtype, 4)
    tile = re.search(r':T\((\d+(?:,\d+)*)\)', self.layout)
    if not tile or not self.shape:
      return self.size * each
    minor_first = re.match(r'\{([\d,]*)', self.layout)[1].split(',')
    sizes = [self.shape[int(axis)] for axis in minor_first]
    for axis, number in enumerate(reversed(tile[1].split(','))):
      if axis < len(sizes):
        sizes[axis] = -(-sizes[axis] // int(number)) * int(number)
    return math.prod(sizes) * each


class Instruction(NamedTuple):
  """One line of a computation."""

  name: str
  op: str
  results: tuple[Array, ...]
  operands: tuple[str, ...]  # names in the same computation
  argument: str  # what is written between the parentheses
  attributes: str  # what is written behind them
  is_root: bool

  def calls(self, *roles: str) -> list[str]:
    """Return the computations that it calls in these roles, all if none."""
    pairs = CALLED.findall(self.attributes)
    names = [name for role, name in pairs if not roles or role in roles]
    branches = BRANCHES.search(self.attributes)
    if branches and not roles:
      names += re.findall(r'%?([\w.\-]+)', branches[1])
    return names

  def attribute(self, pattern: str) -> str | None:
    """Return the first group of a pattern in its attributes."""
    found = re.search(pattern, self.attributes)
    return found[1] if found else None

  @property
  def target(self) -> str:
    """Return the library function of a custom call; '' of another op."""
    return self.attribute(r'custom_call_target="([^"]*)"') or ''

  @property
  def cycles(self) -> int:
    """Return the estimate of the TPU compiler; 0 if there is none."""
    return int(self.attribute(r'"estimated_cycles":"(\d+)"') or 0)


Computation = dict[str, Instruction]  # in the order of the text


class Module(NamedTuple):
  """A program: its computations, and the places in Python by frame."""

  computations: dict[str, Computation]
  entry: str
  frames: dict[int, tuple[str, str]]  # id -> (file, function)

  def source(self, instruction: Instruction) -> tuple[str, str]:
    """Return (file, function) of the Python code that made it, or ('', '')."""
    frame = instruction.attribute(r'stack_frame_id=(\d+)')
    return self.frames.get(int(frame or 0), ('', ''))


def parse(text: str) -> Module:
  """Return the module of `compiled.as_text()`.

  >>> parse(compiled.as_text()).entry
  'main.12'
  """
  computations, entry, current = {}, '', None
  for line in text.splitlines():
    if line.startswith(' '):
      if current is not None and (read := _instruction(line)):
        current[read.name] = read
    elif line.startswith('}'):
      current = None
    elif not line.startswith('HloModule') and (head := COMPUTATION.match(line)):
      current = computations[head[2]] = {}
      entry = head[2] if head[1] else entry
  return Module(computations, entry, _frames(text))


def _instruction(line: str) -> Instruction | None:
  head = RESULT.match(line)
  if not head:
    return None
  results, place = _types(line, head.end())
  opcode = OPCODE.match(line, place)
  if not opcode:
    return None
  end = _closing(line, opcode.end() - 1)
  argument = line[opcode.end() : end]
  operands = tuple(re.findall(r'%([\w.\-]+)', argument))
  return Instruction(
    head[2],
    opcode[1],
    tuple(results),
    operands,
    argument,
    line[end + 1 :],
    bool(head[1]),
  )


def _types(line: str, place: int) -> tuple[list[Array], int]:
  """Return the arrays of a type, a tuple's one by one, and where it ends."""
  if line[place] != '(':
    return _array(line, place)
  arrays, end = [], _closing(line, place)
  place += 1
  while place < end:
    if line.startswith('/*', place):  # the number of the element
      place = line.index('*/', place) + 2
    elif line[place] in ', ':
      place += 1
    else:
      inner, place = _types(line, place)
      arrays += inner
  return arrays, end + 1


def _array(line: str, place: int) -> tuple[list[Array], int]:
  found = ARRAY.match(line, place)
  if not found:  # a type without a shape
    word = re.compile(r'[\w]+').match(line, place)
    return [Array(word[0], (0,))], word.end()
  shape = tuple(
    int(size.removeprefix('<=')) for size in found[2].split(',') if size
  )
  place = found.end()
  if not line.startswith('{', place):
    return [Array(found[1], shape)], place
  end = _closing(line, place) + 1
  return [Array(found[1], shape, line[place:end])], end


def _closing(line: str, place: int) -> int:
  """Return where the bracket that opens at `place` is closed."""
  opening = line[place]
  closing, depth = {'(': ')', '{': '}'}[opening], 0
  for position in range(place, len(line)):
    if line[position] == opening:
      depth += 1
    elif line[position] == closing:
      depth -= 1
      if not depth:
        return position
  raise AssertionError(f'unbalanced: {line[place : place + 80]}')


def _frames(text: str) -> dict[int, tuple[str, str]]:
  """Return (file, function) of each stack frame in the tables of the module."""
  tables: dict[str, dict[int, str]] = {}
  current = None
  for line in text.splitlines():
    if line in ('FileNames', 'FunctionNames', 'FileLocations', 'StackFrames'):
      current = tables.setdefault(line, {})
    elif current is not None and (found := TABLE_LINE.fullmatch(line)):
      current[int(found[1])] = found[2] or found[3]
    elif line:
      current = None
  places = {}
  for number, fields in tables.get('FileLocations', {}).items():
    file, function = (
      int(re.search(rf'{name}_id=(\d+)', fields)[1])
      for name in ('file_name', 'function_name')
    )
    names = tables['FileNames'][file], tables['FunctionNames'][function]
    places[number] = names
  return {
    number: places[int(re.search(r'file_location_id=(\d+)', fields)[1])]
    for number, fields in tables.get('StackFrames', {}).items()
  }
