"""The trackers of one run: TensorBoard's file, and at most one service.

  tensorboard    tb/ in the run directory, where tensorboardX is installed
  wandb          Weights & Biases: project WANDB_PROJECT, or else 'fedjax_pfl'
  FILE.py:NAME   a class of the user's own (docs/howto/trackers.md)

Keys, passwords and modes of the last two, which are services, are a matter of
their own environment and files: nothing of it is read or stored here. The class
of a service starts a run there, by the run directory, whose name it gets, and
its config in the types of JSON; or continues the one of an id. It has

  id                        by which it is found again
  place                     where a person finds it
  log(step, now, numbers)   shows the numbers of a round, at a time since 1970
  finish(result)            shows result.json; None: the run may be continued

Rounds that a stopped run logs once more are shown once. What a service raises
is logged as one sentence, and the run goes on without it. Its id of the run is
in tracker.json, {service: id}, where a run that continues finds it.
"""

import contextlib
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import check_installed
from fedjax_pfl.core.rules import is_number
from fedjax_pfl.core.user_code import is_code, value_of, without_digest
from fedjax_pfl.runs.identity import Log, flatten

NONE = 'none'
TRACKERS = (NONE, 'wandb')
PROJECT = 'fedjax_pfl'  # of runs whose environment names no other
EVENTS = 'tb'  # TensorBoard's folder
HAS_EVENTS = importlib.util.find_spec('tensorboardX') is not None
IDS = 'tracker.json'
PASSWORD = re.compile(r'//[^/@\s]*@')  # of a URL: //name:password@
MOST_WORDS = 200  # characters of what a service raises
UPLOAD = 60  # seconds for the last numbers; what is left, `wandb sync` sends

Numbers = Mapping[str, Any]


class Events:
  """The metrics as TensorBoard reads them; later rounds in files are hidden.

  Written by the thread that trains. tensorboardX's SummaryWriter has a thread
  of its own: on a full disk it ends, and the run would wait for it forever.
  """

  def __init__(self, folder: Path, last_round: int | None):
    # 0.05 s; 2 s where PyTorch is installed, which it imports.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    events = folder / EVENTS
    events.mkdir(exist_ok=True)
    self._event, self._writer = Event, EventsWriter(str(events / 'events'))
    if last_round is not None:
      first = SessionLog(status=SessionLog.START)
      version, step = 'brain.Event:2', last_round + 1
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


class WandB:
  """A run at Weights & Biases, whose files are in the folder wandb/ of ours."""

  def __init__(self, folder: Path, config: Numbers, id: str | None):
    import wandb

    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT') or PROJECT,
      dir=str(folder),
      id=id,
      name=folder.resolve().name,
      config=dict(config),
      resume='allow',
      reinit='create_new',  # other seeds have runs of their own
      allow_val_change=True,  # a resumable field
      settings=wandb.Settings(
        # It would print over the progress bar, and redirect what we print.
        silent=True,
        console='off',
        finish_timeout=UPLOAD,
        finish_timeout_raises=True,
      ),
    )
    self.id, files = self._run.id, os.path.dirname(self._run.dir)
    self.place = self._run.url
    if self._run.offline:
      self.place = f'{files}, for wandb sync'

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    """Send the numbers, unless those of this round are there already."""
    del now  # it has a clock of its own
    if step >= self._run.step:  # it would warn of each, and drop it
      self._run.log(scalars(numbers), step=step, commit=True)

  def finish(self, result: Numbers | None) -> None:
    """Send the result, and end the run."""
    if result is not None:
      self._run.summary.update(scalars(result))
    self._run.finish(exit_code=int(result is None))


class Tracking:
  """What `Run` logs goes to all trackers."""

  def __init__(self, folder: Path, config: Numbers, service: str, log: Log):
    self._folder, self._config, self._log = folder, config, log
    self._name = without_digest(service)
    is_own = is_code(service)
    self._begin_fn = value_of('tracker', service) if is_own else WandB
    self._service = self._events = self._last_round = None

  def start(self, last_round: int | None) -> None:
    """Start or continue the run, hiding later rounds; None: there are none."""
    self._last_round = last_round
    if self._name != NONE:
      self._guarded(self._start)

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    if HAS_EVENTS:
      with atomic_files.writing(self._folder / EVENTS):
        if self._events is None:
          self._events = Events(self._folder, self._last_round)
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
    path, ids = self._folder / IDS, {}
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
      ids = atomic_files.parse_object(atomic_files.read_bytes(path))
    known = ids.get(self._name)
    service = self._begin_fn(self._folder, self._config, known)
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
        f'{self._name} is sent nothing more of {self._folder} '
        f'({reason[:MOST_WORDS] or type(error).__name__}); the run goes on, '
        'and all its numbers are in its directory.'
      )


def check_tracker(name: str) -> None:
  """Refuse a service that is not installed, or code that is not loaded."""
  if is_code(name):
    value_of('tracker', name)
  elif name != NONE:
    check_installed('tracker', name, [one for one in TRACKERS if one != name])


def scalars(numbers: Numbers) -> dict[str, float]:
  """Return the numbers in a tree of dicts by their paths.

  >>> scalars({'status': 'finished', 'views': {'initial': {'mean': 50.0}}})
  {'views/initial/mean': 50.0}
  """
  flat = flatten(numbers, sep='/')
  return {name: value for name, value in flat.items() if is_number(value)}
