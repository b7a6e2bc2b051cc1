"""One run by several processes, on one or several machines: jax.distributed.

Each process reads the data and has the server; the states of clients are
divided over all devices, which train and evaluate their share of the clients
(federated/mesh_round.py). Only the first process reads and writes the run
directory, and prints: no common disk is needed. It broadcasts what it reads,
above all a checkpoint, so that all processes continue from the same round.
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
from fedjax_pfl.training.interruption import HEARTBEAT, first_line, on_abort

AUTO = 'auto'
START = 300  # seconds within which all processes have to connect
PIECE = 2**26  # bytes in one broadcast
# Methods of a run that only read; their results are broadcast.
READS = ('status', 'result', 'has_checkpoint', 'last_checkpoint')


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
  given = {'num_processes': num_processes, 'process_id': process_id}
  check_places(coordinator, **given)
  if not coordinator:
    return
  address = {} if coordinator == AUTO else {'coordinator_address': coordinator}
  # It would handle SIGTERM, and a process could not be stopped.
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
    expected='process 0 to listen there, and num_processes of them to connect '
    f'within {start} s',
    choices=['HOST:PORT of the machine of process 0', AUTO],
    cause='a port that is taken or closed, a process that did not start or '
    'got the number of another, or no batch system that jax knows',
  )


def check_places(
  coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Refuse flags that do not give each process its place."""
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
      expected='the same address and number of processes in all of them, and '
      'in each its own number, from 0',
      choices=[
        '--coordinator=HOST:PORT --num_processes=N --process_id=0 .. N-1',
        f'--coordinator={AUTO}, where a batch system starts them',
      ],
      cause='a missing flag, or process numbers that start with 1',
    )


def is_first() -> bool:
  """Return whether this process writes and prints."""
  return jax.process_index() == 0


def open_run(workdir: str | os.PathLike, *arguments, **more) -> Any:
  """Return `run_dir.open_run(..)`, opened by the first process."""
  if jax.process_count() == 1:
    return run_dir.open_run(workdir, *arguments, **more)
  opened = []
  from_first(
    lambda: opened.append(run_dir.open_run(workdir, *arguments, **more))
  )
  return SharedRun(workdir, opened[0] if opened else None)


class SharedRun:
  """The `run_dir.Run` of the first process, with its methods for all of them.

  Every process calls the same methods; only the first reads and writes.
  """

  def __init__(self, path: str | os.PathLike, run: run_dir.Run | None):
    self.path = path if run is None else run.path
    self.saved: int | None = None  # the last round of the newest checkpoint
    self._run = run

  def __getattr__(self, name: str) -> Callable:
    def call(*arguments, **more):
      def call_first():
        return getattr(self._run, name)(*arguments, **more)

      if name in READS:
        return from_first(call_first)
      return call_first() if self._run is not None else None

    return call

  def save_checkpoint(self, step: int, tree: PyTree) -> None:
    """Save the state, which the first process holds as well."""
    if self._run is not None:
      self._run.save_checkpoint(step, tree)
    self.saved = step

  def resume(self, like: Callable[[int], PyTree]) -> tuple[int, PyTree] | None:
    """Return the newest checkpoint, which the first process reads."""
    trees = []

    def resume():
      restored = self._run.resume(like)
      if restored is None:
        return None
      trees.append(restored[1])
      return restored[0]

    self.saved = from_first(resume)
    if self.saved is None:
      return None
    return self.saved, broadcast(trees[0] if trees else None, like(self.saved))


def check_alike(name: str, value: Any) -> None:
  """Refuse processes whose values differ: their programs would not match."""
  if jax.process_count() == 1:
    return
  text = json.dumps(value, sort_keys=True, default=str)
  own = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
  all_of_them = _utils().process_allgather(own)  # [processes, 32]
  others = np.flatnonzero((all_of_them != all_of_them[0]).any(axis=1))
  if len(others):
    raise bad_input(
      name,
      got=f'in process {", ".join(map(str, others))} another value than in '
      'process 0',
      expected='the same command, data and version in every process',
      cause='a machine with other files, or a command that differs',
    )


def any_of(number: int) -> int:
  """Return the largest number of all processes, in each of them.

  A signal may reach a single process, and all have to stop together.
  """
  if jax.process_count() == 1:
    return number
  numbers = _utils().process_allgather(np.array(number, np.int32))
  return int(numbers.max())


def from_first(fn: Callable[[], Any]) -> Any:
  """Return in all processes what fn returns in the first: a JSON value.

  An exception there is raised in all of them.
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


def broadcast(tree: PyTree | None, like: PyTree) -> PyTree:
  """Return in all processes the tree of the first, bit for bit.

  `like` has its shapes; in other processes `tree` is not used.
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
  """Return the `size` bytes of the first process.

  Piece by piece: each passes through the memory of every device.
  """
  return b''.join(
    _piece_from_first(own[first : first + PIECE], min(PIECE, size - first))
    for first in range(0, size, PIECE)
  )


def _piece_from_first(own: bytes, size: int) -> bytes:
  padded = 1 << (size - 1).bit_length() if size > 1 else 1  # few programs
  content = np.zeros(padded, np.uint8)
  if is_first():
    content[:size] = np.frombuffer(own, np.uint8)
  return np.asarray(_utils().broadcast_one_to_all(content)).tobytes()[:size]


def _utils():
  from jax.experimental import multihost_utils  # 0.1 s, and rarely needed

  return multihost_utils
