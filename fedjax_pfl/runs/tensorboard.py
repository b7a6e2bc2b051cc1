"""The metrics once more, in the files that TensorBoard reads.

Written at once, by the thread that trains. tensorboardX's SummaryWriter has a
thread of its own: on a full disk that dies, and the run waits for it forever.
"""

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any


class Events:
  """An events file; `purge_step` hides what earlier ones say from there on."""

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
    """Write what is a number; flush it."""
    from tensorboardX.summary import scalar

    for name, number in numbers.items():
      if isinstance(number, bool | int | float):
        summary = scalar(name, number)
        self._writer.write_event(
          self._event(wall_time=now, step=step, summary=summary)
        )
    self._writer.flush()

  def close(self) -> None:
    with contextlib.suppress(OSError):  # a full disk: all else is written
      self._writer.close()
