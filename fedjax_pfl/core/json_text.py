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
  except RecursionError as error:
    raise ValueError(f'nested more than {MAX_DEPTH} deep') from error
  _check_depth(value)
  return value


def parse_object(content: str | bytes) -> dict[str, Any]:
  """Return the object of a JSON text; raise ValueError if it is none."""
  value = parse(content)
  if not isinstance(value, dict):
    raise ValueError('not an object with names')
  return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  found = dict(pairs)
  if len(found) == len(pairs):
    return found
  (twin, _), *_ = Counter(name for name, _ in pairs).most_common(1)
  raise ValueError(f'{twin!r} stands twice')


def _check_depth(value: Any) -> None:
  """Refuse what later steps, which recurse, could not take."""
  level = [value]
  for _ in range(MAX_DEPTH + 1):
    level = [
      inner
      for one in level
      if isinstance(one, dict | list)
      for inner in (one.values() if isinstance(one, dict) else one)
      if isinstance(inner, dict | list)
    ]
    if not level:
      return
  raise ValueError(f'nested more than {MAX_DEPTH} deep')
