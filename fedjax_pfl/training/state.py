"""The state of a run between two rounds: the content of a checkpoint.

Every stage has states of its own structure; which one a checkpoint has follows
from its round.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.numbered import Numbered, content_of
from fedjax_pfl.core.types import Key
from fedjax_pfl.federated import host_offload, mesh_states
from fedjax_pfl.federated.cohort import is_on_host
from fedjax_pfl.federated.rounds import begin, stage_shapes
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training.best_rounds import (
  Chosen,
  TestBest,
  best_model_shapes,
  init_chosen,
  init_test_best,
)
from fedjax_pfl.training.build import Experiment, mesh_of


class State(NamedTuple):
  """The content of a checkpoint."""

  server: Server
  clients: Client
  seconds: np.ndarray  # of work so far, in this and in earlier processes
  test_best: dict[str, TestBest]  # of this stage, by view
  chosen: Chosen | tuple[()] = ()  # by validation; () where nothing is


def stage_bounds(stages: tuple[Stage, ...]) -> Iterator[tuple]:
  """Yield every stage with the rounds before its first and after its last."""
  first = 0
  for stage in stages:
    yield stage, first, first + stage.rounds
    first += stage.rounds


def first_state(
  experiment: Experiment, run: Run, key: Key, *, writes: bool = True
) -> tuple[State, int]:
  """Return the newest checkpoint's state and round, or the initial ones.

  Where the run `writes`, later lines of its metrics are dropped.
  """
  restore_fn = run.resume if writes else run.restore_checkpoint
  mesh = mesh_of(experiment.settings.system)
  shapes_fn = partial(state_shapes, experiment)
  if mesh is not None:
    shapes_fn = partial(_shapes_on_host, experiment)
  restored = restore_fn(shapes_fn)
  if restored is None:
    begin_fn = host_offload.begin if is_on_host(experiment.train) else begin
    if mesh is not None:
      begin_fn = partial(mesh_states.begin, mesh=mesh)
    stage = experiment.own_stages[0]
    states = begin_fn(stage, experiment.train, key)
    shapes = best_model_shapes(experiment, stage, *states)
    best = init_test_best(experiment, shapes)
    chosen = init_chosen(experiment, experiment.stages[0], *states)
    state = State(*states, np.zeros(()), best, chosen)
    return _on_servers(partial(_numbered, experiment), state), 0
  done, state = restored
  if mesh is not None:
    state = state._replace(clients=mesh_states.divide(state.clients, mesh))
  return _on_servers(partial(_numbered, experiment), state), done


def _on_servers(function: Callable[[Server], Server], state: State) -> State:
  """Return the state with a function applied to its servers."""
  chosen = state.chosen
  if chosen:
    chosen = chosen._replace(server=function(chosen.server))
  return state._replace(server=function(state.server), chosen=chosen)


def _numbered(experiment: Experiment, server: Server) -> Server:
  """Return the server as the stages of the experiment have it."""
  if experiment.shared is None:
    return server
  return Numbered(server, experiment.shared.numbers)


def _shapes_on_host(experiment: Experiment, step: int) -> State:
  """Return `state_shapes` with clients as arrays on the host."""
  state = state_shapes(experiment, step)
  return state._replace(clients=host_offload.shapes_on_host(state.clients))


def save_state(experiment: Experiment, run: Run, state: State, done: int):
  """Save the checkpoint of round `done`: all K clients, for any devices.

  Every process has to call it.
  """
  state = _on_servers(content_of, state)
  if mesh_of(experiment.settings.system) is not None:
    num_clients = experiment.settings.data.num_seen_clients
    clients = mesh_states.to_host(state.clients, num_clients)
    state = state._replace(clients=clients)
  run.save_checkpoint(done, state)


def state_shapes(experiment: Experiment, step: int) -> State:
  """Return the shapes of the state after `step` rounds.

  They are those of the stage that ran round `step`: a run that continues
  initializes the next stage.
  """
  last = 0
  own_shapes = stage_shapes(experiment.own_stages, experiment.train)
  for shared, (stage, server, clients) in zip(
    experiment.stages, own_shapes, strict=True
  ):
    last += stage.rounds
    if step <= last:
      if is_on_host(experiment.train):
        clients = host_offload.shapes_on_host(clients)
      shapes = best_model_shapes(experiment, stage, server, clients)
      best = init_test_best(experiment, shapes)
      chosen = init_chosen(experiment, shared, server, clients)
      return State(server, clients, np.zeros(()), best, chosen)
  raise AssertionError(f'round {step} of {last}')


def initialize_stage(
  experiment: Experiment, stage: Stage, state: State
) -> State:
  """Return the state with which a later stage starts."""
  initialize_fn = stage.initialize
  if is_on_host(experiment.train):
    initialize_fn = partial(host_offload.initialize_stage, stage)
  mesh = mesh_of(experiment.settings.system)
  if mesh is not None:
    initialize_fn = partial(mesh_states.initialize_stage, stage, mesh=mesh)
  server, clients = initialize_fn(state.server, state.clients, experiment.train)
  shapes = best_model_shapes(experiment, stage, server, clients)
  best = init_test_best(experiment, shapes)
  chosen = init_chosen(experiment, stage, server, clients)
  return State(server, clients, state.seconds, best, chosen)
