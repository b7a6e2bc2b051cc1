"""The collectives of a compiled program, with the bytes that they move."""

import re

KINDS = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
)
LINE = re.compile(rf' = (.*?) ({"|".join(KINDS)})(?:-start)?\(')
ARRAY = re.compile(r'\b(?:pred|bf|f|s|u)(\d*)\[([\d,]*)\]')


def collectives(text: str, num_devices: int) -> list[tuple[str, int]]:
  """Return (kind, bytes) of every collective in the text of a program.

  The bytes are those of the whole array on one device: the result, or the
  argument of a reduce-scatter, which is as many times as large.
  """
  found = []
  for line in text.splitlines():
    if match := LINE.search(line):
      result, kind = match.groups()
      size = sum(_num_bytes(*array) for array in ARRAY.findall(result))
      if kind == 'reduce-scatter':
        size *= num_devices
      found.append((kind, size))
  return sorted(found)


def _num_bytes(bits: str, shape: str) -> int:
  size = 1
  for number in filter(None, shape.split(',')):
    size *= int(number)
  return size * int(bits or 8) // 8
