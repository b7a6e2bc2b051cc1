"""End a run of several processes when one of them is lost.

The others end, too: at once where the network reports it, and in any case after
HEARTBEAT seconds without a heartbeat. Each of them prints an error that names
the last checkpoint, from which the same command continues.
"""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from fedjax_pfl.core.errors import BadInput

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
  except KeyboardInterrupt as stop:  # see preemption.py
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
