"""Everything around a method: the order is the order of this list.

A wrapper is a function from a stage to a stage, and sees what stands above it
as the method. None is left out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedjax_pfl.around import buffers as buffering
from fedjax_pfl.around import failures as failing
from fedjax_pfl.around.aggregation import Aggregation, aggregated
from fedjax_pfl.around.compression import Compression, compressed
from fedjax_pfl.around.fair import Fair, fairly_aggregated
from fedjax_pfl.around.privacy import Mechanism, private
from fedjax_pfl.around.running_statistics import kept_by_clients
from fedjax_pfl.around.server_optimiser import ServerOptimiser, optimised
from fedjax_pfl.around.server_training import ServerTraining, trained
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Task

Wrapper = Callable[[Stage], Stage]


class Around(NamedTuple):
  """What goes around a method; None, or a false record, where there is none."""

  own: Wrapper | None = None  # of the user's
  server_optimiser: ServerOptimiser | None = None
  keeps_statistics: Task | None = None  # of this model
  fair: Fair | None = None
  aggregation: Aggregation | None = None
  compression: Compression | None = None
  privacy: Sequence[Mechanism] = ()  # of each stage
  failures: failing.Failures | None = None
  server_training: ServerTraining | None = None
  buffers: buffering.Buffers | None = None


def around(stages: tuple[Stage, ...], parts: Around) -> tuple[Stage, ...]:
  """Return the stages of a method, wrapped."""

  def wrapped(number, stage):
    mechanism = parts.privacy[number] if parts.privacy else None
    is_first = number == 0
    decoded = mechanism is not None or bool(parts.aggregation)
    return chain(
      parts.own,  # sees the method alone
      # The server moves by what the method's mean says.
      _with(optimised, parts.server_optimiser, alone=len(stages) == 1),
      # Clients keep their running statistics, which are in no message.
      _with(kept_by_clients, parts.keeps_statistics),
      # Clients send encoded changes; lies and clips are of decoded ones.
      _with(compressed, parts.compression, decoded=decoded, is_first=is_first),
      _with(fairly_aggregated, parts.fair),
      _with(aggregated, parts.aggregation),
      _with(private, mechanism),
      # If no client sends, the model stays; wrappers below may still change it.
      _with(failing.unmoved_by_nobody, parts.failures),
      _with(trained, parts.server_training, stages=len(stages)),
      _with(buffering.buffered, parts.buffers),
      # A client fails with all that it has computed.
      _with(failing.failing, parts.failures),
    )(stage)

  return tuple(wrapped(number, stage) for number, stage in enumerate(stages))


def chain(*wrappers: Wrapper | None) -> Wrapper:
  """Return the wrappers as one, the first of which is the innermost."""

  def wrap(stage):
    for wrapper in filter(None, wrappers):
      stage = wrapper(stage)
    return stage

  return wrap


def _with(wrapper: Callable, settings, **more) -> Wrapper | None:
  """Return the wrapper with its settings; None without any."""
  if not settings:
    return None
  return lambda stage: wrapper(stage, settings, **more)
