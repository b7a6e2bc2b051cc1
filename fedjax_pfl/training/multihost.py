"""One run by several processes, on one machine or on many: jax.distributed.

Each process reads the data and holds the whole state; its devices train and
evaluate their share of the clients (mesh.py). Only the first one touches the
run directory and prints: the others need no common disk. What it finds there, a
checkpoint above all, it sends to them, so that all go on from the same round.
"""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.training.lost_process import HEARTBEAT, first_line, on_abort

AUTO = 'auto'
START = 300  # seconds for all processes to come
# What a run directory is asked, beside what is written to it.
ASKED = ('status', 'result', 'has_checkpoint', 'last_checkpoint')


def connect(
  coordinator: str | None,
  num_processes: int | None = None,
  process_id: int | None = None,
  *,
  start: int = START,
) -> None:
  """Join the other processes; without a coordinator there are none.

  Before jax is asked for its devices. The first process prints, no other.

  >>> connect('10.0.0.1:1234', num_processes=2, process_id=0)
  >>> connect('auto')  # SLURM, TPU pods, Kubernetes, MPI: jax asks them
  """
  given = {'num_processes': num_processes, 'process_id': process_id}
  check_places(coordinator, **given)
  if not coordinator:
    return
  address = {} if coordinator == AUTO else {'coordinator_address': coordinator}
  # It would take SIGTERM for itself, and nothing would stop a process.
  jax.config.update('jax_enable_preemption_service', False)
  try:
    with on_abort(lambda: str(_refused(coordinator, start, 'see above'))):
      jax.distributed.initialize(
        **address,
        **given,
        initialization_timeout=start,
        heartbeat_timeout_seconds=HEARTBEAT,
      )
  except (RuntimeError, ValueError) as error:
    raise _refused(coordinator, start, first_line(error)) from error
  if jax.process_index():
    progress.silence()


def _refused(coordinator: str, start: int, reason: str) -> BadInput:
  return bad_input(
    'coordinator',
    got=f'{coordinator} ({reason})',
    expected='process 0 to listen there, and as many as num_processes to come '
    f'within {start} s',
    choices=['HOST:PORT of the machine of process 0', AUTO],
    cause='a port that is taken or closed, a process that did not start or '
    'got the number of another, or no batch system that jax knows',
  )


def check_places(
  coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Refuse flags that do not say where each process is."""
  given = {'num_processes': num_processes, 'process_id': process_id}
  absent = [name for name, number in given.items() if number is None]
  wrong = None
  if not coordinator and len(absent) < 2:
    wrong = 'a number of a process, and no coordinator'
  elif coordinator == AUTO and len(absent) < 2:
    wrong = f'numbers of processes with {AUTO}, which finds them'
  elif coordinator and coordinator != AUTO:
    host, _, port = coordinator.rpartition(':')
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
      wrong = f'{coordinator}, which is no HOST:PORT'
    elif absent:
      wrong = f'a coordinator, and no {" and no ".join(absent)}'
    elif not 0 <= process_id < num_processes:
      wrong = f'process_id {process_id} of {num_processes} processes'
  if wrong:
    raise bad_input(
      'coordinator',
      got=wrong,
      expected='an address that is the same for all processes, how many they '
      'are, and for each its own number, from 0',
      choices=[
        '--coordinator=HOST:PORT --num_processes=N --process_id=0 .. N-1',
        f'--coordinator={AUTO}, where a batch system starts them',
      ],
      cause='a flag that was forgotten, or process numbers that begin with 1',
    )


def is_first() -> bool:
  """Return whether this process writes and prints."""
  return jax.process_index() == 0


def open_run(workdir: str | os.PathLike, *arguments, **more) -> Any:
  """Return `store.open_run(..)`, which is that of the first process."""
  if jax.process_count() == 1:
    return run_dir.open_run(workdir, *arguments, **more)
  opened = []
  ask_first(
    lambda: opened.append(run_dir.open_run(workdir, *arguments, **more))
  )
  return SharedRun(workdir, opened[0] if opened else None)


class SharedRun:
  """The run directory of the first process, for all: `store.Run`, or nobody.

  Every process asks and writes alike; the first one does it.
  """

  def __init__(self, path: str | os.PathLike, run: run_dir.Run | None):
    self.path = path if run is None else run.path
    self.saved: int | None = None  # the last round of the newest checkpoint
    self._run = run

  def __getattr__(self, name: str) -> Callable:
    def call(*arguments, **more):
      def done():
        return getattr(self._run, name)(*arguments, **more)

      if name in ASKED:
        return ask_first(done)
      return done() if self._run is not None else None

    return call

  def save_checkpoint(self, step: int, tree: PyTree) -> None:
    """Save what the next round needs; the first process has all of it."""
    if self._run is not None:
      self._run.save_checkpoint(step, tree)
    self.saved = step

  def resume(self, like: Callable[[int], PyTree]) -> tuple[int, PyTree] | None:
    """Return the newest checkpoint, which the first process reads."""
    found = {}

    def look():
      found['it'] = self._run.resume(like)
      return found['it'] and found['it'][0]

    self.saved = ask_first(look)
    if self.saved is None:
      return None
    tree = found['it'][1] if found else None
    return self.saved, send(tree, like(self.saved))


def check_alike(name: str, value: Any) -> None:
  """Refuse processes that were not told the same: no two would fit."""
  if jax.process_count() == 1:
    return
  text = json.dumps(value, sort_keys=True, default=str)
  own = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
  all_of_them = _utils().process_allgather(own)  # [processes, 32]
  others = np.flatnonzero((all_of_them != all_of_them[0]).any(axis=1))
  if len(others):
    raise bad_input(
      name,
      got=f'another one in process {", ".join(map(str, others))} than in '
      'process 0',
      expected='the same command, data and version in every process',
      cause='a machine with other files, or a command that was changed for '
      'some of them',
    )


def any_of(number: int) -> int:
  """Return to all the largest number that a process has.

  A signal may come to one of them alone, and all have to stop together.
  """
  if jax.process_count() == 1:
    return number
  numbers = _utils().process_allgather(np.array(number, np.int32))
  return int(numbers.max())


def ask_first(fn: Callable[[], Any]) -> Any:
  """Return to all what fn returns in the first process: what JSON can hold.

  What it raises there is raised in all of them.
  """
  answer, error = {}, None
  if is_first():
    try:
      answer = {'value': fn()}
    except Exception as raised:
      answer, error = {'error': str(raised)}, raised
  text = json.dumps(answer).encode()
  size = int.from_bytes(_from_first(len(text).to_bytes(8, 'big'), 8), 'big')
  answer = json.loads(_from_first(text, size))
  if error is not None:
    raise error
  if 'error' in answer:
    raise BadInput(answer['error'])
  return answer['value']


def send(tree: PyTree | None, like: PyTree) -> PyTree:
  """Return to all the tree of the first process, bit for bit.

  `like` has its shapes; elsewhere the tree is not looked at.
  """
  leaves = jax.tree.leaves(tree) if is_first() else []
  own = b''.join(np.asarray(leaf).tobytes() for leaf in leaves)
  kinds = jax.tree.leaves(like)
  sizes = [leaf.size * leaf.dtype.itemsize for leaf in kinds]
  content = _from_first(own, sum(sizes))
  if is_first():
    return tree
  parts = np.split(np.frombuffer(content, np.uint8), np.cumsum(sizes)[:-1])
  values = [
    np.frombuffer(part.tobytes(), leaf.dtype).reshape(leaf.shape).copy()
    for part, leaf in zip(parts, kinds, strict=True)
  ]
  placed = map(checkpoint.place, values, kinds)
  return jax.tree.unflatten(jax.tree.structure(like), placed)


def _from_first(own: bytes, size: int) -> bytes:
  """Return the bytes of the first process, of which there are so many."""
  room = 1 << (size - 1).bit_length() if size > 1 else 1  # few programs
  content = np.zeros(room, np.uint8)
  if is_first():
    content[:size] = np.frombuffer(own, np.uint8)
  return np.asarray(_utils().broadcast_one_to_all(content)).tobytes()[:size]


def _utils():
  from jax.experimental import multihost_utils  # 0.1 s, and seldom needed

  return multihost_utils
