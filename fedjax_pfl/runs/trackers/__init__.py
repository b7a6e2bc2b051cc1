"""The trackers of one run: TensorBoard's file, and at most one service.

  tensorboard   tb/ in the run directory; every run has it
  wandb         Weights & Biases
  mlflow        an MLflow server, or a file

The last two are services of packages that are installed apart. A module has a
class `Run`: `Run(begin)` starts a run there, or continues it, and has

  id                        by which it is found again; of a service
  place                     where a person finds it; of a service
  log(step, now, numbers)   shows the numbers of a round, at a time since 1970
  finish(result)            shows result.json; None: the run may be continued

A run that was stopped logs the rounds after its checkpoint once more; they are
shown once. A service never costs a training: what it raises is logged as one
sentence, and the run goes on without it. Its id of the run is in tracker.json,
{service: id}, so that a run that continues is continued there.
"""

import contextlib
import importlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.rules import is_number
from fedjax_pfl.runs.identity import flatten

NONE = 'none'
TRACKERS = (NONE, 'wandb', 'mlflow')
PROJECT = 'fedjax_pfl'  # of runs whose environment names no other
EVENTS = 'tb'  # TensorBoard's folder
IDS = 'tracker.json'
PASSWORD = re.compile(r'//[^/@\s]*@')  # of a URL: //name:password@
MOST_WORDS = 200  # characters of what a service raises

Numbers = Mapping[str, Any]


class Begin(NamedTuple):
  """What a tracker is told of a run that starts or continues."""

  folder: pathlib.Path  # the run directory, whose name is that of the run
  config: Numbers  # in the types of JSON
  id: str | None = None  # of the tracker's own run; None: there is none yet
  last_round: int | None = None  # of the checkpoint; later ones come again


class Events:
  """The metrics as TensorBoard reads them; later rounds in files are hidden.

  Written by the thread that trains. tensorboardX's SummaryWriter has a thread
  of its own: on a full disk it ends, and the run would wait for it forever.
  """

  def __init__(self, begin: Begin):
    # 0.05 s; 2 s where PyTorch is installed, which it imports.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    folder = begin.folder / EVENTS
    folder.mkdir(exist_ok=True)
    self._event, self._writer = Event, EventsWriter(str(folder / 'events'))
    if begin.last_round is not None:
      first = SessionLog(status=SessionLog.START)
      version, step = 'brain.Event:2', begin.last_round + 1
      self._writer.write_event(Event(step=step, file_version=version))
      self._writer.write_event(Event(step=step, session_log=first))

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    """Write the values that are numbers, and flush them."""
    from tensorboardX.summary import scalar

    for name, number in numbers.items():
      if isinstance(number, int | float):
        self._writer.write_event(
          self._event(wall_time=now, step=step, summary=scalar(name, number))
        )
    self._writer.flush()

  def finish(self, result: Numbers | None) -> None:
    """Close the file; TensorBoard shows curves, and no result."""
    with contextlib.suppress(OSError):  # a full disk
      self._writer.close()


class Tracking:
  """What `Run` logs goes to all trackers."""

  def __init__(
    self,
    folder: pathlib.Path,
    config: Numbers,
    service: str,
    log: Callable[[str], None],
  ):
    self._begin, self._name, self._log = Begin(folder, config), service, log
    self._service = self._events = None

  def start(self, last_round: int | None) -> None:
    """Start or continue the run, after this round: later ones are hidden.

    -1 hides all rounds; None: there are none.
    """
    self._begin = self._begin._replace(last_round=last_round)
    if self._name != NONE:
      self._guarded(self._start)

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    with atomic_files.writing(self._begin.folder / EVENTS):
      if self._events is None:
        self._events = Events(self._begin)
      self._events.log(step, now, numbers)
    if self._service is not None:
      self._guarded(lambda: self._service.log(step, now, numbers))

  def finish(self, result: Numbers | None) -> None:
    """Close all trackers; without a result the run may be continued."""
    if self._service is not None:
      self._guarded(lambda: self._service.finish(result))
    if self._events is not None:
      self._events.finish(result)
    self._service = self._events = None

  def _start(self) -> None:
    path = self._begin.folder / IDS
    ids = _read_ids(path)
    module = importlib.import_module(f'{__name__}.{self._name}')
    service = module.Run(self._begin._replace(id=ids.get(self._name)))
    atomic_files.write_json(path, {**ids, self._name: service.id})
    self._service = service
    self._log(f'{self._name}: {PASSWORD.sub("//", service.place)}')

  def _guarded(self, call: Callable[[], None]) -> None:
    """Call it; if it raises, log that, and use the service no more."""
    try:
      call()
    except Exception as error:  # services raise dozens of kinds
      self._service = None
      reason = PASSWORD.sub('//', f'{error}').strip().partition('\n')[0]
      self._log(
        f'{self._name} is sent nothing more of {self._begin.folder} '
        f'({reason[:MOST_WORDS] or type(error).__name__}); the run goes on, '
        'and all its numbers are in its directory.'
      )


def scalars(numbers: Numbers) -> dict[str, float]:
  """Return the numbers in a tree of dicts by their paths.

  >>> scalars({'status': 'finished', 'views': {'initial': {'mean': 50.0}}})
  {'views/initial/mean': 50.0}
  """
  flat = flatten(numbers, '/')
  return {name: value for name, value in flat.items() if is_number(value)}


def _read_ids(path: pathlib.Path) -> dict[str, str]:
  """Return {service: id}; {} where there is no file, or a damaged one."""
  with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
    return dict(json.loads(path.read_bytes()))
  return {}
