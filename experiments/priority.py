"""Take the lowest priority, and some of the cores, before jax is imported.

Threads begin with the priority and the cores of the one that starts them, so
this comes before numpy and jax start theirs.
"""

import contextlib
import os

NICEST = 19


def lower(cores: int | None = None) -> None:
  """Give way to all other processes; run on so many cores, or on all."""
  if cores is not None:
    _take_cores(cores)
  if hasattr(os, 'nice'):
    os.nice(NICEST)
  if hasattr(os, 'SCHED_IDLE'):  # Linux: runs only where nothing else does
    with contextlib.suppress(OSError):
      os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _take_cores(cores: int) -> None:
  can_choose = hasattr(os, 'sched_setaffinity')
  allowed = sorted(os.sched_getaffinity(0)) if can_choose else []
  if 1 <= cores <= len(allowed):
    os.sched_setaffinity(0, allowed[-cores:])  # the first have interrupts
    return
  from fedjax_pfl.core.errors import bad_input

  raise bad_input(
    'cores',
    got=cores,
    expected='as many cores as this process may use, or fewer',
    choices=range(1, len(allowed) + 1) if can_choose else ['no --cores'],
    cause='a smaller machine'
    if can_choose
    else 'a system on which a process cannot choose its cores',
  )
