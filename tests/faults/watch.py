"""What happened while something was tried: what it raised, compiled, wrote."""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import compiler
import jax

from fedjax_pfl.core.errors import BadInput

LIMIT = 5.0  # seconds of the processor until the sentence
# Arrays that move to a device go by these names; nothing else is compiled.
MOVES = {'jit(stage)', 'jit(convert_element_type)'}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
PARTS = (': got ', ', expected ', '. Likely cause: ')
CHANGES = {'os.rename', 'os.link', 'os.symlink', 'os.truncate'}
CHANGES |= {'os.mkdir', 'os.remove', 'os.rmdir'}


class Trial(NamedTuple):
  """What came of one input."""

  value: Any = None  # what was returned
  refusal: BadInput | None = None  # or the sentence
  fault: str = ''  # what must not happen


def attempt(call: Callable[[], Any]) -> Trial:
  """Return what came of a call that may refuse its input and do no more."""
  value, refusal, faults, changes = None, None, [], []

  def note(what, path):
    is_new = what != 'os.mkdir' or not os.path.exists(path)
    if is_new and not _is_cache(path):
      changes.append((what, path))

  began = time.process_time()
  with watching('', note), compiler.counting() as compiled:
    try:
      value = call()
    except BadInput as error:
      refusal = error
      if wrong := wrong_sentence(str(error)):
        faults.append(wrong)
    except BaseException as error:
      frame = traceback.extract_tb(error.__traceback__)[-1]
      place = f'{os.path.basename(frame.filename)}:{frame.lineno}'
      faults.append(f'{type(error).__name__} in {place}: {error}'[:300])
  seconds = time.process_time() - began
  if refusal and seconds > LIMIT:
    faults.append(f'a sentence after {seconds:.1f} s')
  faults += [f'compiled {name}' for name in {*compiled} - MOVES]
  for what, path in changes:
    if what != 'os.mkdir' or os.path.exists(path):  # or was it refused?
      faults.append(f'wrote {path}: {what}')
  return Trial(value, refusal, ''.join(faults[:1]))


def wrong_sentence(message: str) -> str:
  """Return what is wrong with a message; '' if it has its four parts."""
  missing = [part for part in PARTS if part not in message]
  if missing:
    return f'no {missing} in {message[:300]}'
  if not message.endswith('.') or message.endswith('..'):
    return f'no end: {message[:300]}'
  return f'{len(message)} letters' if len(message) > 4000 else ''


def _is_cache(path: str) -> bool:
  """Return whether it is a cache of Python or jax, or nowhere."""
  folder = jax.config.jax_compilation_cache_dir
  if '__pycache__' in path or path == os.devnull:  # as a process is started
    return True
  return bool(folder and path.startswith(folder))


_listeners = []


@contextlib.contextmanager
def watching(folder, look: Callable[[str, str], None]) -> Iterator[None]:
  """Call look(what, path) before a change of a file below, and at a flush."""
  flush = os.fsync

  def notify(what, path):
    if path.startswith(str(folder)):
      look(what, path)

  def fsync(handle):
    flush(handle)
    notify('flush', str(folder))

  _listeners.append(notify)
  try:
    with mock.patch.object(os, 'fsync', fsync):
      yield
  finally:
    _listeners.remove(notify)


def _audit(event: str, args: tuple) -> None:
  """Tell the listeners; Python cannot take such a hook away again."""
  writes = event == 'open' and isinstance(args[2], int) and args[2] & WRITES
  if (writes or event in CHANGES) and not isinstance(args[0], int):
    for notify in [*_listeners]:
      notify(event, os.fsdecode(args[0]))


sys.addaudithook(_audit)
