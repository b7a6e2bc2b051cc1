"""Read JSON that others wrote: any damage to it is a ValueError.

`json.loads` raises RecursionError on deep lists, and of a key that stands twice
it forgets the first value.
"""

import json
from collections import Counter
from typing import Any

MAX_DEPTH = 50  # of lists and objects in each other; ours have a tenth of it


def parse(content: str | bytes) -> Any:
  """Return the value of a JSON text; raise ValueError if it is damaged."""
  try:
    value = json.loads(content, object_pairs_hook=_without_twins)
    is_flat = _depth(value) <= MAX_DEPTH
  except RecursionError:
    is_flat = False
  if is_flat:  # later steps recurse
    return value
  raise ValueError(f'nested more than {MAX_DEPTH} deep')


def parse_object(content: str | bytes) -> dict[str, Any]:
  """Return the object of a JSON text; raise ValueError if it is none."""
  value = parse(content)
  if not isinstance(value, dict):
    raise ValueError('not an object with names')
  return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  value = dict(pairs)
  if len(value) == len(pairs):
    return value
  (twin, _), *_ = Counter(name for name, _ in pairs).most_common(1)
  raise ValueError(f'{twin!r} stands twice')


def _depth(value: Any) -> int:
  if not isinstance(value, dict | list):
    return 0
  inner = value.values() if isinstance(value, dict) else value
  return 1 + max(map(_depth, inner), default=0)
