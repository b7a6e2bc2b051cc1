"""What happened while something was tried: what it raised, compiled, wrote."""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import compiler
import jax

from fedjax_pfl.core.errors import BadInput

LIMIT = 3.0  # seconds from the end of the imports to the sentence
# Arrays that move to a device go by these names; nothing else is compiled.
MOVES = {'jit(stage)', 'jit(convert_element_type)'}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
PARTS = (': got ', ', expected ', '. Likely cause: ')
CHANGES = {'os.rename', 'os.link', 'os.symlink', 'os.truncate'}


class Trial(NamedTuple):
  """What came of one input."""

  value: Any = None  # what was returned
  refusal: BadInput | None = None  # or the sentence
  faults: tuple[str, ...] = ()  # what must not happen

  @property
  def is_accepted(self) -> bool:
    return self.refusal is None and not self.faults


class _Log:
  """What the hooks of this process report while one is set."""

  current: '_Log | None' = None
  hooked = False

  def __init__(self):
    self.written: list[str] = []
    self.made: list[str] = []  # folders, if they could be made


def attempt(call: Callable[[], Any]) -> Trial:
  """Return what came of a call that may refuse its input and do no more."""
  trial, seconds = _try(call)
  if trial.refusal and seconds > LIMIT:  # or was the machine busy?
    trial, seconds = _try(call)
  if trial.refusal and seconds > LIMIT:
    late = f'a sentence after {seconds:.1f} s'
    trial = trial._replace(faults=(*trial.faults, late))
  return trial


def _try(call: Callable[[], Any]) -> tuple[Trial, float]:
  """Return what came of it, and after how many seconds of the processor."""
  value, refusal, faults = None, None, []
  with _logging() as log, compiler.counting() as compiled:
    began = time.process_time()
    try:
      value = call()
    except BadInput as error:
      refusal = error
    except BaseException as error:
      frame = traceback.extract_tb(error.__traceback__)[-1]
      place = f'{os.path.basename(frame.filename)}:{frame.lineno}'
      faults.append(f'{type(error).__name__} in {place}: {error}'[:300])
    seconds = time.process_time() - began
  if refusal and (wrong := wrong_sentence(str(refusal))):
    faults.append(f'{wrong}: {str(refusal)[:300]}')
  if others := set(compiled) - MOVES:
    faults.append(f'compiled {sorted(others)}')
  written = log.written + [path for path in log.made if os.path.exists(path)]
  if written:
    faults.append(f'wrote {written}')
  return Trial(value, refusal, tuple(faults)), seconds


def wrong_sentence(message: str) -> str:
  """Return what is wrong with a message; '' if it has its four parts."""
  for part in PARTS:
    if part not in message:
      return f'no part {part!r}'
  if not message.endswith('.') or message.endswith('..'):
    return 'no end'
  if len(message) > 4000:
    return f'{len(message)} letters'
  return ''


@contextlib.contextmanager
def _logging():
  """Collect what is written and compiled."""
  if not _Log.hooked:  # an audit hook stays for good
    sys.addaudithook(_audit)
    _Log.hooked = True
  _Log.current = log = _Log()
  try:
    yield log
  finally:
    _Log.current = None


def _audit(event: str, args: tuple) -> None:
  log, path = _Log.current, str(args[0]) if args else ''
  if log is None or _is_cache(path):
    return
  if event == 'open':
    # Files by number are open already.
    changing = isinstance(args[2], int) and args[2] & WRITES
    if changing and isinstance(args[0], str):
      log.written.append(path)
  elif event == 'os.mkdir' and not os.path.exists(path):
    log.made.append(path)
  elif event in CHANGES:
    log.written.append(f'{event} {path}')


def _is_cache(path: str) -> bool:
  """Return whether it is a cache of Python or jax."""
  folder = jax.config.jax_compilation_cache_dir
  return '__pycache__' in path or bool(folder and path.startswith(folder))
