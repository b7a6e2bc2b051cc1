"""What becomes of a run of several processes when one of them is lost.

It ends the others as well: at once where the network says so, and after
HEARTBEAT seconds of silence anywhere. Each of them says in a sentence what is
kept, and the same command goes on from the last checkpoint.
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

HEARTBEAT = 60  # seconds without a sign of life until a process is lost


class LostError(RuntimeError):
  """Another process of the run is gone; the message says what is left."""


@contextlib.contextmanager
def watching(runs: Sequence[Any]) -> Iterator[None]:
  """Say in a sentence that another process was lost, and what is kept."""
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
  """Return whether an exception says that another process does not answer."""
  text = str(error)
  if isinstance(error, BadInput) or 'RESOURCE_EXHAUSTED' in text:
    return False
  words = ('Gloo', 'NCCL', 'peer', 'heartbeat', 'coordination service')
  return any(word in text for word in words)


def lost_sentence(runs: Sequence[Any], reason: str) -> str:
  others = [n for n in range(jax.process_count()) if n != jax.process_index()]
  who = f'process {others[0]}' if len(others) == 1 else 'another process'
  saved = [run.saved for run in runs if run.saved is not None]
  kept = f'the checkpoint of round {min(saved)} is' if saved else 'nothing was'
  return (
    f'Process {jax.process_index()} of {jax.process_count()} has lost {who} '
    f'({reason}); {kept} saved. The same command, given to all of them, goes '
    f'on {"from there" if saved else "from the start"}.'
  )


@contextlib.contextmanager
def on_abort(sentence_fn: Callable[[], str]) -> Iterator[None]:
  """Say a sentence where jax aborts.

  Where process 0 is lost, or never came, jax's own threads end this one as a
  bug would: no exception reaches Python, and no handler of its `signal`, which
  run between two lines of Python alone.
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
  """End the process at once where several work and this one fails.

  Else its end would wait for the others, and they for it.
  """
  if jax.process_count() == 1:
    yield
    return
  try:
    with on_abort(lambda: lost_sentence((), 'see above')):
      yield
  except (BadInput, LostError) as error:
    leave(1, str(error))
  except KeyboardInterrupt as stop:  # see stopping.py
    leave(getattr(stop, 'status', 128 + signal.SIGINT))
  except SystemExit as error:
    leave(error.code if isinstance(error.code, int) else 1)
  except BaseException:
    leave(1, traceback.format_exc())


def leave(status: int, text: str = '') -> None:
  """End this process, whatever its threads wait for."""
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  os.write(2, f'{text}\n'.encode() if text else b'')
  os._exit(status)


def first_line(error: Exception) -> str:
  return str(error).partition('\n')[0][:200]
