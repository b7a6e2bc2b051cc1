"""Signals that stop a run between two compiled calls, with a checkpoint.

SIGTERM comes before a preemptible machine is taken away, SIGINT from Ctrl-C. A
call is never interrupted, so a signal waits for one call (a round on a CPU;
else log_every of them), and, at the beginning, for its compilation. A second
Ctrl-C stops at once.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
  """A signal ended the program; all checkpoints that were saved are whole."""

  def __init__(self, number: int, *, logged: bool = False):
    super().__init__()
    self.status = 128 + number  # as shells have it: 143 for SIGTERM
    self.logged = logged  # whether it was logged that the run is saved


@contextlib.contextmanager
def catch_signals() -> Iterator[Callable[[], int]]:
  """Record signals; yield a function that returns the first one, or 0.

  Signals reach the main thread only: in another thread nothing is recorded. A
  signal that is ignored stays so, as SIGINT is in a job behind `&`.
  """
  received = []

  def handle(number, frame):
    if number == signal.SIGINT and received:
      raise Stopped(number)
    received.append(number)

  before = {}
  if threading.current_thread() is threading.main_thread():
    before = {
      number: signal.signal(number, handle)
      for number in SIGNALS
      if signal.getsignal(number) is not signal.SIG_IGN
    }
  try:
    yield lambda: received[0] if received else 0
  except Exception as error:
    if not received:
      raise
    # A caller that goes on after the error would go on after the signal, too.
    raise Stopped(received[0]) from error
  finally:
    for number, old in before.items():
      # None: a handler that was not set by Python, which cannot restore it.
      signal.signal(number, signal.SIG_DFL if old is None else old)
  if received:  # after the run looked for the last time
    raise Stopped(received[0])
