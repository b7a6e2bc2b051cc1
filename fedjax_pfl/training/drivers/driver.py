"""The interface by which a run drives its rounds."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.rounds import Round


class Call(NamedTuple):
  """The rounds of one seed between two stops: the arguments of a `Round`."""

  server: Server
  clients: Client
  cohorts: Array  # [T, C]
  data: ClientData
  key: Key


class Result(NamedTuple):
  """What the rounds of a call return."""

  server: Server
  clients: Client
  metrics: dict[str, np.ndarray]  # [T, C, ...]
  took_part: np.ndarray  # [T, C] bool; False: excluded, with metrics of 0


class RoundDriver(NamedTuple):
  """A way to run rounds.

  `run` returns the result of every call, in order, when all rounds are done;
  it takes up to `max_calls` calls at once: of as many rounds in one stage.
  """

  run: Callable[[Sequence[Call]], list[Result]]
  max_calls: int = 1


def in_turn(rounds_fn: Round) -> RoundDriver:
  """Return the driver that runs one call after the other."""
  return RoundDriver(lambda calls: run_in_turn(rounds_fn, calls))


def run_in_turn(rounds_fn: Round, calls: Sequence[Call]) -> list[Result]:
  """Return the results of rounds_fn(*call) for every call."""
  return to_results([rounds_fn(*call) for call in calls])


def to_results(returned: Sequence[tuple]) -> list[Result]:
  """Return (server, clients, metrics) of calls as results; waits for them."""
  metrics = jax.tree.map(np.asarray, [values for _, _, values in returned])
  return [
    Result(server, clients, values, np.ones(values['loss'].shape, bool))
    for (server, clients, _), values in zip(returned, metrics, strict=True)
  ]
