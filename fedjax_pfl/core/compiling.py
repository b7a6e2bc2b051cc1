"""How long this process has traced and compiled: no rate should count that.

jax tells the duration of each trace, lowering and compilation as it ends. A
trace contains those of the functions that it calls, which end before it.
"""

import time

import jax.monitoring

PREFIX = '/jax/core/compile/'
_spans: list[tuple[float, float]] = []  # (began, lasted), none in another


def seconds() -> float:
  """Return the seconds so far."""
  return sum(lasted for _, lasted in _spans)


def add(name: str, lasted: float, **_) -> None:
  """Count what has just ended."""
  if not name.startswith(PREFIX):
    return
  began = time.perf_counter() - lasted
  while _spans and _spans[-1][0] >= began:
    _spans.pop()
  _spans.append((began, lasted))


jax.monitoring.register_event_duration_secs_listener(add)
