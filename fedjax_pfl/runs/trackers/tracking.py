"""The trackers of one run: TensorBoard's file, and at most one service.

A service never costs a training: what it raises is logged as one sentence, and
the run goes on without it. Its id of the run is in tracker.json, {service: id},
so that a run that continues is continued there.
"""

import importlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.runs.trackers import tensorboard
from fedjax_pfl.runs.trackers.tracker import NONE, Begin, Numbers, Tracker

IDS = 'tracker.json'
PASSWORD = re.compile(r'//[^/@\s]*@')  # of a URL: //name:password@
MOST_WORDS = 200  # characters of what a service raises


class Tracking:
  """What `Run` logs goes to all trackers."""

  def __init__(
    self,
    folder: pathlib.Path,
    config: Mapping[str, Any],
    service: str,
    log: Callable[[str], None],
  ):
    self._begin = Begin(folder, config)
    self._name = service
    self._log = log
    self._service: Tracker | None = None
    self._events: Tracker | None = None

  def rewind(self, last_round: int) -> None:
    """Hide the rounds after this one; -1 hides all."""
    self._begin = self._begin._replace(last_round=last_round)

  def start(self) -> None:
    """Start or continue the run at its service, where it has one."""
    if self._name != NONE:
      self._guarded(self._start)

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    with atomic_files.writing(self._begin.folder / tensorboard.FOLDER):
      if self._events is None:
        self._events = tensorboard.start(self._begin)
      self._events.log(step, now, numbers)
    if self._service is not None:
      self._guarded(lambda: self._service.log(step, now, numbers))

  def finish(self, result: Numbers | None) -> None:
    """Close all trackers; without a result the run may be continued."""
    if self._service is not None:
      self._guarded(lambda: self._service.finish(result))
      self._service = None
    if self._events is not None:
      self._events.finish(result)
      self._events = None

  def _start(self) -> None:
    path = self._begin.folder / IDS
    ids = _read_ids(path)
    module = f'fedjax_pfl.runs.trackers.{self._name}'
    begin = self._begin._replace(id=ids.get(self._name))
    service = importlib.import_module(module).start(begin)
    atomic_files.write_json(path, {**ids, self._name: service.id})
    self._service = service
    self._log(f'{self._name}: {_without_password(service.place)}')

  def _guarded(self, call: Callable[[], None]) -> None:
    """Call it; if it raises, log that, and use the service no more."""
    try:
      call()
    except Exception as error:  # services raise dozens of kinds
      self._service = None
      reason = _without_password(f'{error}').strip().partition('\n')[0]
      reason = reason[:MOST_WORDS] or type(error).__name__
      self._log(
        f'{self._name} is sent nothing more of {self._begin.folder} '
        f'({reason}); the run goes on, and all its numbers are in its '
        'directory.'
      )


def _read_ids(path: pathlib.Path) -> dict[str, str]:
  """Return {service: id}; {} where there is no file, or a damaged one."""
  try:
    ids = json.loads(path.read_bytes())
  except (FileNotFoundError, ValueError):
    return {}
  return ids if isinstance(ids, dict) else {}


def _without_password(text: str) -> str:
  return PASSWORD.sub('//', text)
