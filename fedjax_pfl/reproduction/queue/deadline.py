"""Stop after some minutes, as before a machine is taken away: by SIGTERM.

A training that is under way saves a checkpoint after the round that it is in,
and continues from there the next time.
"""

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator

from fedjax_pfl.core.errors import bad_input


def check_minutes(minutes: float | None) -> None:
  """Refuse what is no time to work; None is without an end."""
  if minutes is None or 0 < minutes < math.inf:
    return
  raise bad_input(
    'minutes',
    got=minutes,
    expected='a number of minutes above 0',
    choices=['150', 'nothing, to go on until all is done'],
    cause='a typing error, or MINUTES without a number',
  )


@contextlib.contextmanager
def deadline(minutes: float | None) -> Iterator[Callable[[], bool]]:
  """Send this process SIGTERM when the time is up; yield whether it is."""
  is_up = threading.Event()

  def stop():
    is_up.set()
    os.kill(os.getpid(), signal.SIGTERM)

  timer = threading.Timer((minutes or 0) * 60, stop)
  timer.daemon = True
  if minutes is not None:
    timer.start()
  try:
    yield is_up.is_set
  finally:
    timer.cancel()
