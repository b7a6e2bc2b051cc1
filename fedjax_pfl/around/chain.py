"""Everything around a method: the order is the order of this list.

A wrapper is a function from a stage to a stage, and sees what stands above it
as the method. None is left out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedjax_pfl.around import buffers as buffering
from fedjax_pfl.around import failures as failing
from fedjax_pfl.around.compression import Compression, compressed
from fedjax_pfl.around.privacy import Mechanism, private
from fedjax_pfl.around.running_statistics import kept_by_clients
from fedjax_pfl.around.server_optimiser import ServerOptimiser, optimised
from fedjax_pfl.around.server_training import ServerTraining, trained
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Task

Wrapper = Callable[[Stage], Stage]


class Around(NamedTuple):
  """What goes around a method; false where there is none."""

  own: Wrapper | None = None  # of the user's
  server_optimiser: ServerOptimiser | None = None
  keeps_statistics: Task | None = None  # of this model
  compression: Compression | None = None
  privacy: Sequence[Mechanism] = ()  # of each stage
  failures: failing.Failures | None = None
  server_training: ServerTraining | None = None
  buffers: buffering.Buffers | None = None


def around(stages: tuple[Stage, ...], how: Around) -> tuple[Stage, ...]:
  """Return the method with all that goes around it."""
  number = len(stages)

  def wrapped(place, stage):
    mechanism = how.privacy[place] if how.privacy else None
    is_first, clips = place == 0, mechanism is not None
    return chain(
      how.own,  # sees the method alone
      # The server moves by what the method's mean says.
      _with(optimised, how.server_optimiser, alone=number == 1),
      # A client keeps its own; they are in no message.
      _with(kept_by_clients, how.keeps_statistics),
      # What is sent are changes, encoded; what is clipped is what arrives.
      _with(compressed, how.compression, decoded=clips, is_first=is_first),
      _with(private, mechanism),
      # The server does not move where nobody sends, but for what follows.
      _with(failing.unmoved_by_nobody, how.failures),
      _with(trained, how.server_training, stages=number),
      _with(buffering.buffered, how.buffers),
      # A client fails with all that it has computed.
      _with(failing.failing, how.failures),
    )(stage)

  return tuple(wrapped(place, stage) for place, stage in enumerate(stages))


def chain(*wrappers: Wrapper | None) -> Wrapper:
  """Return the wrappers as one, the first of which is the innermost."""

  def wrap(stage):
    for wrapper in filter(None, wrappers):
      stage = wrapper(stage)
    return stage

  return wrap


def _with(wrapper: Callable, how, **more) -> Wrapper | None:
  """Return the wrapper with its record; None without."""
  if not how:
    return None
  return lambda stage: wrapper(stage, how, **more)
