"""The metrics as TensorBoard reads them: the folder tb/ of a run.

Written by the thread that trains. tensorboardX's SummaryWriter has a thread of
its own: on a full disk it ends, and the run would wait for it forever.
"""

import contextlib

from fedjax_pfl.runs.trackers.tracking import EVENTS, Begin, Numbers


class Run:
  """Write the numbers; later rounds in earlier files are hidden."""

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
    del result
    with contextlib.suppress(OSError):  # a full disk
      self._writer.close()
