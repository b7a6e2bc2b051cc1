"""Runs that are interrupted: by a signal, or by the loss of another process.

SIGTERM comes before a preemptible machine is taken away, SIGINT from Ctrl-C: a
run saves a checkpoint and stops. It looks for signals between compiled calls: a
call is never interrupted, so a signal waits for one call (a round on a CPU;
else log_every of them), and, at the beginning, for its compilation. A second
Ctrl-C stops at once.

When one of several processes is lost, the others end, too: at once where the
network reports it, and in any case after HEARTBEAT seconds without a heartbeat.
Each of them prints an error that names the last checkpoint, from which the same
command continues.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from fedjax_pfl.core.errors import BadInput

SIGNALS = (signal.SIGTERM, signal.SIGINT)
HEARTBEAT = 60  # seconds without a heartbeat until a process is lost


class LostError(RuntimeError):
  """Another process of the run ended; the message names the checkpoint."""


@contextlib.contextmanager
def watching(runs: Sequence[Any]) -> Iterator[None]:
  """Raise or print `lost_sentence` when another process is lost."""
  if jax.process_count() == 1:
    yield
    return
  with on_abort(lambda: lost_sentence(runs, 'see above')):
    try:
      yield
    except (RuntimeError, ValueError) as error:
      if not is_loss(error):
        raise
      raise LostError(lost_sentence(runs, first_line(error))) from error


def is_loss(error: Exception) -> bool:
  """Return whether an exception is caused by the loss of another process."""
  text = str(error)
  if isinstance(error, BadInput) or 'RESOURCE_EXHAUSTED' in text:
    return False
  words = ('Gloo', 'NCCL', 'peer', 'heartbeat', 'coordination service')
  return any(word in text for word in words)


def lost_sentence(runs: Sequence[Any], reason: str) -> str:
  """Return the error that names both processes and the last checkpoint."""
  others = [n for n in range(jax.process_count()) if n != jax.process_index()]
  who = f'process {others[0]}' if len(others) == 1 else 'another process'
  saved = [run.saved for run in runs if run.saved is not None]
  last = f'the checkpoint of round {min(saved)}' if saved else 'no checkpoint'
  return (
    f'Process {jax.process_index()} of {jax.process_count()} has lost {who} '
    f'({reason}); {last} was saved. The same command in all processes '
    f'continues from {"there" if saved else "the start"}.'
  )


@contextlib.contextmanager
def on_abort(sentence_fn: Callable[[], str]) -> Iterator[None]:
  """Print a sentence and end the process where jax aborts it.

  Where process 0 is lost, or was never started, threads of jax abort this
  process. No exception reaches Python then, and handlers of its `signal` do not
  run: these run between two lines of Python only.
  """

  @ctypes.CFUNCTYPE(None, ctypes.c_int)
  def handler(number):
    leave(1, sentence_fn())

  libc = ctypes.CDLL(None)
  libc.signal.restype = ctypes.c_void_p
  libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
  before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
  try:
    yield
  finally:
    libc.signal(signal.SIGABRT, before)


@contextlib.contextmanager
def ending() -> Iterator[None]:
  """End this process at once where it fails and there are others.

  Otherwise its end would wait for the others, and theirs for it.
  """
  if jax.process_count() == 1:
    yield
    return
  try:
    with on_abort(lambda: lost_sentence((), 'see above')):
      yield
  except (BadInput, LostError) as error:
    leave(1, str(error))
  except KeyboardInterrupt as stop:  # see Stopped
    leave(getattr(stop, 'status', 128 + signal.SIGINT))
  except SystemExit as error:
    leave(error.code if isinstance(error.code, int) else 1)
  except BaseException:
    leave(1, traceback.format_exc())


def leave(status: int, text: str = '') -> None:
  """End this process, even if its threads are blocked."""
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  os.write(2, f'{text}\n'.encode() if text else b'')
  os._exit(status)


def first_line(error: Exception) -> str:
  return str(error).partition('\n')[0][:200]


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

  def first():
    return received[0] if received else 0

  if threading.current_thread() is not threading.main_thread():
    yield first
    return
  before = {
    number: signal.signal(number, handle)
    for number in SIGNALS
    if signal.getsignal(number) is not signal.SIG_IGN
  }
  try:
    yield first
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
