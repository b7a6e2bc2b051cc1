"""One run by several processes, on one or several machines: jax.distributed.

Each process reads the data and has the server; all devices have, train and
evaluate their share of the clients (federated/client_map.py). Only the first
process reads and writes the run directory, and prints: no common disk is
needed. The others get what it reads, and continue from the same round.

When a process is lost, the others end, too: at once where the network reports
it, and in any case after HEARTBEAT seconds without a heartbeat. If it is the
first one, jax aborts them from a thread of its own. The same command in all
processes continues from the last checkpoint.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.runs import checkpoint, run_dir

AUTO = 'auto'
BY_HAND = '--coordinator=HOST:PORT --num_processes=N --process_id=0 .. N-1'
START = 300  # seconds within which all processes have to connect
HEARTBEAT = 60  # seconds without a heartbeat until a process is lost
PIECE = 2**26  # bytes in one broadcast
# In errors of jax after a process is lost.
NETWORK = 'Gloo', 'NCCL', 'onnection', 'UNAVAILABLE', 'heartbeat', 'peer'
# Methods of a run that only read; their results are broadcast.
READS = ('result', 'last_checkpoint', 'secret')


def connect(
  coordinator: str | None,
  num_processes: int | None = None,
  process_id: int | None = None,
  *,
  start: int = START,
) -> None:
  """Connect to the other processes; without a coordinator there are none.

  To be called before jax lists its devices. Only the first process prints.

  >>> connect('10.0.0.1:1234', num_processes=2, process_id=0)
  >>> connect('auto')  # SLURM, TPU pods, Kubernetes, MPI: found by jax
  """
  check_places(coordinator, num_processes, process_id)
  if not coordinator:
    return
  # It would handle SIGTERM, and a process could not be stopped.
  jax.config.update('jax_enable_preemption_service', False)
  try:
    if process_id:  # jax would abort where nobody listens
      _wait_for(coordinator, start)
    jax.distributed.initialize(
      None if coordinator == AUTO else coordinator,
      num_processes,
      process_id,
      initialization_timeout=start,
      heartbeat_timeout_seconds=HEARTBEAT,
    )
  except (RuntimeError, ValueError, OSError) as error:
    if coordinator == AUTO and isinstance(error, ValueError):
      raise bad_input(
        'coordinator',
        got=AUTO,
        expected='a process that a batch system has started, as one of several',
        choices=[
          f'srun fedjax-pfl train .. --coordinator={AUTO}, in a job of SLURM',
          BY_HAND,
        ],
      ) from error
    reason = str(error).partition('\n')[0][:200]
    raise bad_input(
      'coordinator',
      got=f'{coordinator} ({reason})',
      expected='process 0 to listen there, and num_processes of them to '
      f'connect within {start} s',
      choices=['HOST:PORT of the machine of process 0', AUTO],
      cause='a port that is taken or closed, a process that did not start or '
      'got the number of another, or no batch system that jax knows',
    ) from error
  if jax.process_index():
    progress.silence()


def check_places(
  coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Refuse flags that do not give each process its place."""
  numbers = num_processes, process_id
  if coordinator in (None, '', AUTO):
    is_right = numbers == (None, None)
  else:
    host, _, port = coordinator.rpartition(':')
    is_address = host and port.isdecimal() and 0 < int(port) < 2**16
    is_right = is_address and None not in numbers
    is_right = is_right and 0 <= process_id < num_processes
  if not is_right:
    raise bad_input(
      'coordinator',
      got=f'{coordinator} with num_processes={num_processes} and '
      f'process_id={process_id}',
      expected='the same address and number of processes in all of them, and '
      'in each its own number, from 0',
      choices=[
        BY_HAND,
        f'--coordinator={AUTO}, where a batch system starts them',
      ],
    )


def _wait_for(coordinator: str, seconds: float) -> None:
  """Return when process 0 listens; raise OSError if it does not."""
  host, _, port = coordinator.rpartition(':')
  last = time.monotonic() + seconds
  while True:
    try:
      socket.create_connection((host.strip('[]'), int(port)), 5).close()
      return
    except OSError:
      if time.monotonic() > last:
        raise
      time.sleep(0.2)


def is_first() -> bool:
  """Return whether this process writes and prints."""
  return jax.process_index() == 0


# ---- the run directory of the first process ----------------------------------


def open_run(workdir: str | os.PathLike, *arguments, **more) -> Any:
  """Return `run_dir.open_run(..)`, opened by the first process."""
  open_fn, opened = partial(run_dir.open_run, workdir, *arguments, **more), []
  if jax.process_count() == 1:
    return open_fn()
  from_first(lambda: opened.append(open_fn()))
  return SharedRun(workdir, *opened)


class SharedRun:
  """The `Run` of the first process; all call its methods, it alone acts."""

  def __init__(self, path: str | os.PathLike, run: run_dir.Run | None = None):
    self.path = run.path if run else pathlib.Path(path)
    self.scores, self._run = run and run.scores, run

  def __getattr__(self, name: str) -> Callable:
    def call(*arguments, **more):
      if name in READS:
        return from_first(lambda: getattr(self._run, name)(*arguments, **more))
      return self._run and getattr(self._run, name)(*arguments, **more)

    return call

  def resume(self, like: Callable[[int], PyTree]) -> tuple[int, PyTree] | None:
    """Return the newest checkpoint, which the first process reads."""
    restored = []  # step and tree, in the first process

    def read():
      restored.extend(self._run.resume(like) or ())
      return restored[0] if restored else None

    step = from_first(read)
    if step is None:
      return None
    leaves = map(np.asarray, jax.tree.leaves(restored[1:]))
    content = _bytes_of_first(b''.join(leaf.tobytes() for leaf in leaves))
    kinds, structure = jax.tree.flatten(like(step))
    ends = np.cumsum([kind.size * kind.dtype.itemsize for kind in kinds])
    parts = np.split(np.frombuffer(content, np.uint8), ends[:-1])
    placed = [
      checkpoint.place(part.copy().view(kind.dtype).reshape(kind.shape), kind)
      for part, kind in zip(parts, kinds, strict=True)
    ]
    return step, jax.tree.unflatten(structure, placed)


# ---- what processes tell one another -----------------------------------------


def check_alike(name: str, value: Any) -> None:
  """Refuse processes whose values differ: their programs would not match."""
  if jax.process_count() == 1:
    return
  text = json.dumps(value, sort_keys=True, default=str)
  digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
  all_of_them = _utils().process_allgather(digest)  # [processes, 32]
  others = np.flatnonzero((all_of_them != all_of_them[0]).any(axis=1))
  if len(others):
    who = ', '.join(map(str, others))
    raise bad_input(
      name,
      got=f'in process {who} another value than in process 0',
      expected='the same command, data and version in every process',
    )


def any_of(number: int) -> int:
  """Return the largest number of all processes, in each of them.

  A signal may reach a single process, and all have to stop together.
  """
  if jax.process_count() == 1:
    return number
  return int(_utils().process_allgather(np.array(number, np.int32)).max())


def from_first(fn: Callable[[], Any]) -> Any:
  """Return in all processes what fn returns, or raises, in the first: JSON."""
  answer, error = {}, None
  if is_first():
    try:
      answer = {'value': fn()}
    except Exception as raised:
      answer, error = {'error': str(raised)}, raised
  answer = json.loads(_bytes_of_first(json.dumps(answer).encode()))
  if error is not None:
    raise error
  if 'error' in answer:
    raise BadInput(answer['error'])
  return answer['value']


def _bytes_of_first(content: bytes) -> bytes:
  """Return in all processes the bytes that the first gives."""
  size = int.from_bytes(_broadcast(len(content).to_bytes(8, 'big'), 8), 'big')
  pieces = [
    _broadcast(content[first : first + PIECE], min(PIECE, size - first))
    for first in range(0, size, PIECE)  # each is in the memory of every device
  ]
  return b''.join(pieces)


def _broadcast(content: bytes, size: int) -> bytes:
  """Return the `size` bytes of the first process."""
  padded = 1 << (size - 1).bit_length()  # few lengths are few programs
  array = np.zeros(padded, np.uint8)
  if is_first():
    array[:size] = np.frombuffer(content, np.uint8)
  return np.asarray(_utils().broadcast_one_to_all(array)).tobytes()[:size]


def _of_lost_process(error: BaseException) -> str:
  """Return a sentence for an error of the network; '' for any other."""
  reason = str(error).partition('\n')[0]
  # Some reach Python as a ValueError, which begins with XLA's status.
  is_of_jax = isinstance(error, jax.errors.JaxRuntimeError)
  is_of_jax |= re.match('[A-Z_]+: ', reason) is not None
  if not is_of_jax or not any(word in reason for word in NETWORK):
    return ''
  return (
    f'Process {jax.process_index()} ends with status 1: another process of the '
    'run was lost, and its own message says why. The same command in all '
    f'processes continues from the last checkpoint. ({reason[:120]})'
  )


def _utils():
  from jax.experimental import multihost_utils  # 0.1 s, and rarely needed

  return multihost_utils


@contextlib.contextmanager
def ending() -> Iterator[None]:
  """End this process at once if it fails: else it would wait for the others."""
  if jax.process_count() == 1:
    yield
    return
  status, text = 1, ''
  try:
    yield
    return
  except BadInput as error:
    text = str(error)
  except KeyboardInterrupt as stop:  # signals.Stopped has a status
    status = getattr(stop, 'status', 128 + signal.SIGINT)
  except SystemExit as error:
    status = error.code if isinstance(error.code, int) else 1
  except BaseException as error:
    text = _of_lost_process(error) or traceback.format_exc()
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  os.write(2, f'{text}\n'.encode() if text else b'')
  os._exit(status)  # even if its threads are blocked
