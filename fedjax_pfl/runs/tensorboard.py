"""The metrics as TensorBoard reads them.

Written by the thread that trains. tensorboardX's SummaryWriter has a thread of
its own: on a full disk it ends, and the run would wait for it forever.
"""

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any


class EventsFile:
  """An events file; `purge_step` hides later steps of earlier files."""

  def __init__(self, folder: pathlib.Path, purge_step: int | None):
    # 0.05 s; 2 s where PyTorch is installed, which it imports.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    folder.mkdir(exist_ok=True)
    self._event = Event
    self._writer = EventsWriter(str(folder / 'events'))
    if purge_step is not None:
      start = SessionLog(status=SessionLog.START)
      version = 'brain.Event:2'
      self._writer.write_event(Event(step=purge_step, file_version=version))
      self._writer.write_event(Event(step=purge_step, session_log=start))

  def write(self, step: int, now: float, numbers: Mapping[str, Any]) -> None:
    """Write the values that are numbers, and flush them."""
    from tensorboardX.summary import scalar

    for name, number in numbers.items():
      if isinstance(number, bool | int | float):
        summary = scalar(name, number)
        self._writer.write_event(
          self._event(wall_time=now, step=step, summary=summary)
        )
    self._writer.flush()

  def close(self) -> None:
    with contextlib.suppress(OSError):  # a full disk
      self._writer.close()
