"""Signals that ask a run to stop: it saves what it has, and says so.

SIGTERM comes before a preemptible machine is taken away, SIGINT from Ctrl-C.
Between compiled calls a run is `asked`: a call is never broken off, so what a
signal waits for is one call (a round on a CPU; else log_every of them), and,
at the beginning, its compilation. A second Ctrl-C stops at once.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
  """A signal ended the program; nothing that was complete is lost."""

  def __init__(self, number: int, *, told: bool = False):
    super().__init__()
    self.status = 128 + number  # as shells have it: 143 for SIGTERM
    self.told = told  # somebody has said that the run is saved


@contextlib.contextmanager
def asked() -> Iterator[Callable[[], int]]:
  """Only take note of signals; yield what returns the one that came, or 0.

  Signals reach the main thread alone: in another nothing is done. Nor is it
  with one that is ignored, as SIGINT is in a job behind `&`.
  """
  came = []

  def note(number, frame):
    if number == signal.SIGINT and came:
      raise Stopped(number)
    came.append(number)

  def first():
    return came[0] if came else 0

  if threading.current_thread() is not threading.main_thread():
    yield first
    return
  before = {
    number: signal.signal(number, note)
    for number in SIGNALS
    if signal.getsignal(number) is not signal.SIG_IGN
  }
  try:
    yield first
  finally:
    for number, old in before.items():
      # None: it was set by other than Python, and cannot be put back by it.
      signal.signal(number, signal.SIG_DFL if old is None else old)
  if came:  # after the last time that anybody has asked
    raise Stopped(came[0])
