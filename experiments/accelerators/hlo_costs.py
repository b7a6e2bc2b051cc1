"""FLOPs and bytes of one instruction of an optimised program.

FLOPs  2 for each multiplication and addition of products and convolutions,
       inside fusions, too, and in calls of cuDNN and cuBLAS; other
       arithmetic is not counted
bytes  read and written in the main memory of the device: operands and
       results, each once. Of an operand that is only sliced or gathered the
       rows that are read count, of an update in place what is written, and of
       one that adds (a scatter) what is read for it; what lies in another
       memory (a TPU's VMEM) does not count. Caches are not modelled.
"""

import math
import re

from experiments.accelerators.hlo_text import (
  Array,
  Computation,
  Instruction,
  Module,
)

# Of the counting: records of an earlier one are compiled again.
VERSION = 2
# They compute nothing and move nothing.
FREE = {
  *('parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast'),
  *('after-all', 'opt-barrier', 'partition-id', 'replica-id', 'iota'),
  *('domain', 'bitcast-convert', 'async-done', 'async-update', 'copy-done'),
}
COLLECTIVES = (
  *('all-gather', 'all-reduce', 'reduce-scatter', 'all-to-all'),
  *('collective-permute', 'collective-broadcast'),
)
ROWS = ('dynamic-slice', 'slice', 'gather')  # read a part of operand 0
# They update operand 0 in place; the place of the rows that are written.
UPDATES = {'dynamic-update-slice': 1, 'scatter': 2}
VIEWS = ('bitcast', 'copy', 'transpose', 'reshape')
LIBRARY = ('__cudnn', '__cublas')  # further results are workspace


def is_kernel(instruction: Instruction) -> bool:
  """Return whether the device runs something for it."""
  op = instruction.op
  return op not in FREE and not op.endswith('-done')


def collective(instruction: Instruction) -> str | None:
  """Return the name of the collective that begins here; else None."""
  name = instruction.op.removesuffix('-start')
  return name if name in COLLECTIVES else None


def collective_bytes(instruction: Instruction) -> int:
  """Return the bytes of what a device has after the collective."""
  results = instruction.results
  op, number = instruction.op, len(instruction.operands)
  if op.endswith('-start') and op != 'all-reduce-start':
    # Others start as (operands, results), perhaps with a context behind.
    results = results[number : 2 * number]
  return sum(result.nbytes for result in results)


def flops(
  instruction: Instruction, computation: Computation, module: Module
) -> int:
  """Return the FLOPs of its products and convolutions."""
  op, target = instruction.op, instruction.target
  if op == 'dot':
    axes = _numbers(instruction, r'lhs_contracting_dims=\{([\d,]*)\}')
    return _product(instruction, computation, axes)
  if '__cublas' in target:
    pattern = r'"lhs_contracting_dimensions":\[([^\]]*)\]'
    return _product(instruction, computation, _numbers(instruction, pattern))
  if op == 'convolution' or '__cudnn$conv' in target:
    return _convolution(instruction, computation)
  if op == 'fusion':
    return sum(
      flops(inner, module.computations[name], module)
      for name in instruction.calls('calls')
      for inner in module.computations[name].values()
    )
  return 0


def traffic(
  instruction: Instruction, computation: Computation, module: Module
) -> int:
  """Return the bytes that it moves from and to the main memory."""
  fused = {}
  if instruction.op == 'fusion':
    (name,) = instruction.calls('calls')
    fused = module.computations[name]
  return _read(instruction, computation, fused, module) + _written(
    instruction, computation, fused
  )


def _product(instruction, computation, contracted) -> int:
  left = computation[instruction.operands[0]].results[0]
  depth = math.prod(left.shape[axis] for axis in contracted)
  return 2 * instruction.results[0].size * depth


def _convolution(instruction, computation) -> int:
  labels = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', instruction.attributes)
  if not labels:
    return 0
  first, second = (
    computation[name].results[0] for name in instruction.operands[:2]
  )
  if 'BackwardFilter' in instruction.target:  # of an image and a gradient
    return 2 * instruction.results[0].size * _all_but(second, labels[3], 'f')
  depth = second.shape[labels[2].index('i')]
  taps = math.prod(_taps(instruction))
  if 'BackwardInput' in instruction.target:  # each output pixel goes to k k
    return 2 * first.size * taps * depth
  return round(2 * instruction.results[0].size * taps * depth)


def _taps(instruction):
  """Yield the products of each axis of a window; holes in images are none.

  A stride backwards: of 1 x 1 taps over an image with holes between its pixels
  only one in four meets a pixel.
  """
  window = instruction.attribute(r'window=\{size=([\dx]+)') or '1'
  sizes = [int(size) for size in window.split('x')]
  holes = instruction.attribute(r'window=\{[^}]*lhs_dilate=([\dx]+)')
  steps = (
    [int(step) for step in holes.split('x')] if holes else [1] * len(sizes)
  )
  for size, step in zip(sizes, steps, strict=True):
    yield size / step


def _all_but(array: Array, labels: str, left_out: str) -> int:
  pairs = zip(array.shape, labels, strict=True)
  return math.prod(size for size, label in pairs if label != left_out)


def _numbers(instruction, pattern) -> list[int]:
  found = instruction.attribute(pattern) or ''
  return [int(number) for number in re.findall(r'\d+', found)]


def _read(instruction, computation, fused, module) -> int:
  parameters = {
    int(inner.argument): inner
    for inner in fused.values()
    if inner.op == 'parameter'
  }
  total = 0
  for place, name in enumerate(instruction.operands):
    if name not in computation:
      continue
    for array in computation[name].results:
      if array.space:
        continue
      part = None
      if place in parameters:
        part = _used_rows(parameters[place], fused, module)
      elif place == 0 and instruction.op in ROWS:
        part = instruction.results[0].nbytes
      elif place == 0 and _rows(instruction, computation):
        part = _updated(instruction, computation, module)
      elif instruction.op == 'slice-start':
        part = instruction.results[1].nbytes
      total += array.nbytes if part is None else min(part, array.nbytes)
  return total


def _used_rows(value, fused, module, depth=0) -> int | None:
  """Return the bytes of the rows that a fusion reads; None: of all."""
  total = 0
  for user in fused.values():
    if value.name not in user.operands:
      continue
    is_first = user.operands[0] == value.name
    if is_first and user.op in ROWS:
      total += user.results[0].nbytes
    elif is_first and _rows(user, fused):
      total += _updated(user, fused, module)
    elif user.op in VIEWS and depth < 3 and not user.is_root:
      inner = _used_rows(user, fused, module, depth + 1)
      if inner is None:
        return None
      total += inner
    else:
      return None
  return total


def _written(instruction, computation, fused) -> int:
  results = instruction.results
  if any(name in instruction.target for name in LIBRARY):
    results = results[:1]
  if instruction.op in ('copy-start', 'async-start'):
    results = results[:1]  # the others are its operand and a context
  elif instruction.op == 'slice-start':
    results = results[1:2]  # behind its operand
  if rows := _rows(instruction, computation):
    results = [] if results[0].space else [rows]
  elif fused:
    results = _fused_results(results, fused)
  return sum(array.nbytes for array in results if not array.space)


def _fused_results(results, fused) -> list[Array]:
  """Return the results of a fusion, updates in place for whole arrays."""
  (root,) = (inner for inner in fused.values() if inner.is_root)
  parts = [root] if root.op != 'tuple' else [fused[n] for n in root.operands]
  if len(parts) != len(results):
    return [*results]
  written = []
  for part, array in zip(parts, results, strict=True):
    rows = _rows_in_place(part, fused)
    written += [array] if array.space or not rows else rows
  return written


def _rows_in_place(part, fused) -> list[Array]:
  """Return what updates write into a parameter; [] of what is computed."""
  written = []
  while part.op in VIEWS or _rows(part, fused):
    if rows := _rows(part, fused):
      written.append(rows)
    part = fused[part.operands[0]]
  return written if part.op == 'parameter' else []


def _rows(instruction, computation) -> Array | None:
  """Return the rows that an update in place writes; None of others."""
  place = UPDATES.get(instruction.op)
  if place is None or (place == 2 and len(instruction.operands) != 3):
    return None  # a scatter may have several arrays
  rows = computation[instruction.operands[place]].results[0]
  return rows._replace(layout='')  # they lie in the memory of the array


def _updated(instruction, computation, module) -> int:
  """Return the bytes of the array that an update reads: of rows it adds to."""
  for name in instruction.calls('to_apply'):
    (root,) = (one for one in module.computations[name].values() if one.is_root)
    if (root.op, root.argument) != ('parameter', '1'):
      return _rows(instruction, computation).nbytes
  return 0
