"""The state of a run between two rounds: how it starts, resumes and is saved.

Every stage has states of its own structure; which one a checkpoint has follows
from its round. Everything else follows from the experiment and the seed.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from fedjax_pfl.core.algorithm import Client, Server, Stage, as_stored
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData, Key, Scores
from fedjax_pfl.data.client_data import on_device
from fedjax_pfl.federated.host_offload import examples_of
from fedjax_pfl.federated.placement import unshared
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.runs.checkpoint import KEEP
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training import best_models
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, Program, States

# One word a stream of random numbers; their order is part of every result.
STREAMS = ('states', 'cohorts', 'rounds', 'evaluation')


class State(NamedTuple):
  """The content of a checkpoint."""

  server: Server
  clients: Client
  seconds: np.ndarray  # of work so far, in this and in earlier processes
  kept: best_models.Kept | tuple[()] = ()  # by the clients of this stage
  chosen: best_models.Choice = ()  # by validation
  sim_seconds: np.ndarray | tuple[()] = ()  # simulated; () without speeds


class Training(NamedTuple):
  """A run in this process, between two rounds."""

  experiment: Experiment
  run: Run
  program: Program
  keys: dict[str, Key]
  evaluator: Evaluator
  state: State
  done: int  # rounds
  data: ClientData  # what the present stage trains on
  # {validation/VIEW: scores} of round `done`; {} until it is evaluated.
  validation: dict[str, Scores]

  @property
  def states(self) -> States:
    return self.state.server, self.state.clients

  def rounds_key(self, phase: 'Phase') -> Key:
    """Return the key of a stage's rounds, of which each takes its own."""
    privacy, key = self.experiment.privacy, self.keys['rounds']
    return privacy.rounds_key(key, phase.number)


class Phase(NamedTuple):
  """A stage among those of a run, and the rounds before and after it."""

  number: int
  stage: Stage
  first: int
  last: int


def phases(stages: tuple[Stage, ...]) -> Iterator[Phase]:
  """Yield every stage with the rounds before its first and after its last."""
  first = 0
  for number, stage in enumerate(stages):
    yield Phase(number, stage, first, first + stage.rounds)
    first += stage.rounds


def random_streams(seed: int) -> dict[str, Key]:
  """Return the key of every stream of random numbers of a run."""
  keys = jax.random.split(jax.random.key(seed), len(STREAMS))
  return dict(zip(STREAMS, keys, strict=True))


def start_training(
  experiment: Experiment, run: Run, program: Program
) -> Training:
  """Return the run after its newest checkpoint, if any; else at its start."""
  keys = random_streams(experiment.settings.seed)
  keys |= experiment.privacy.streams(run)
  _check_states(experiment, run)
  placement = experiment.placement.of_run(run.path)
  experiment = experiment._replace(placement=placement)
  evaluator = Evaluator(experiment, keys['evaluation'], program)
  # Its stage: what is compiled here serves all runs that share the program.
  first, *_ = program.stages(evaluator.numbers)
  if restored := run.resume(partial(state_shapes, experiment)):
    done, state = restored
    clients = state.clients
    if placement.on_disk:
      files = placement.resumed(first, experiment.train, keys['states'])
      files.go_to(done)
      clients = files.clients
    state = state._replace(clients=placement.from_host(clients))
  else:
    states = placement.begin(first, experiment.train, keys['states'])
    done, state = 0, _state_of(experiment, experiment.stages[0], states)
  train = experiment.train
  return Training(
    experiment, run, program, keys, evaluator, state, done, train, validation={}
  )


def start_stage(training: Training, phase: Phase) -> Training:
  """Return the run as the stage starts or continues, if the run is in it."""
  experiment, stage = training.experiment, phase.stage
  if training.done == phase.first and phase.number:
    states = experiment.placement.initialize(
      stage, *training.states, experiment.train
    )
    state = _state_of(experiment, stage, states, training.state)
    training = training._replace(state=state)
  if not phase.first <= training.done < phase.last:
    return training
  data = experiment.train
  if stage.prepare_data is not as_stored:  # which may read all
    data = stage.prepare_data(training.state.server, on_device(data))
  if timing := experiment.timing:
    data = data._replace(work=timing.work(phase.number))
  state = training.state
  clients = unshared(state.clients, (state.server, data))
  return training._replace(data=data, state=state._replace(clients=clients))


def cohorts_fn(training: Training, phase: Phase) -> Callable[[int, int], tuple]:
  """Return (first, stop) -> who takes part after `first` up to `stop`: [T, C].

  Their examples are read ahead. Those of the first cohort come with it where a
  device has no others.
  """
  experiment, key, ahead = training.experiment, training.keys['cohorts'], 0
  sampler = experiment.sampler_of(phase.stage)
  if sampler.by_rounds:
    key = training.rounds_key(phase)
    ahead = training.state.server.round - training.done

  double = jax.config.jax_enable_x64  # as here, in each thread

  def draw(first, stop):
    with jax.enable_x64(double):
      cohorts = sampler.draw(key, first + ahead, stop - first)
      ids, data = np.asarray(cohorts), training.data
      experiment.read_ahead(experiment.train, ids)
      is_moved = isinstance(data.x, np.ndarray)
      return cohorts, *([examples_of(ids[0], data)] if is_moved else [])

  return draw


def calls(
  draw_fn: Callable[[int, int], futures.Future], done: int, stops: Sequence[int]
) -> Iterator[tuple[int, tuple]]:
  """Yield the last round of each compiled call, and what is drawn for it.

  While a call runs, that of the next is drawn.
  """
  drawn = itertools.starmap(draw_fn, itertools.pairwise([done, *stops]))
  following = next(drawn, None)
  for stop in stops:
    now, following = following.result(), next(drawn, None)
    yield stop, now


def _state_of(
  experiment: Experiment,
  stage: Stage,
  states: States,
  before: State | None = None,
) -> State:
  """Return the state in which a stage begins with these states, or shapes."""
  no_time = np.zeros(()) if experiment.timing else ()
  return State(
    *states,
    before.seconds if before else np.zeros(()),
    *best_models.nothing_yet(experiment, stage, states),
    before.sim_seconds if before else no_time,
  )


def save_state(training: Training, keep: int = KEEP) -> None:
  """Save all K clients, for any devices; every process has to call it."""
  experiment, state = training.experiment, training.state
  num_clients, done = experiment.settings.data.num_seen_clients, training.done

  state = state._replace(server=experiment.placement.whole(state.server))

  def save(clients):
    training.run.save_checkpoint(done, state._replace(clients=clients), keep)

  experiment.placement.save(done, state.clients, num_clients, save)


def _check_states(experiment: Experiment, run: Run) -> None:
  """Refuse to continue on disk what began elsewhere, and the other way."""
  if run.last_checkpoint() is None:
    return
  placement = experiment.settings.system.clients_placement
  began_on_disk = (run.path / 'states').exists()
  if began_on_disk != experiment.placement.on_disk:
    raise bad_input(
      'clients_placement',
      got=f'{placement}, for a run whose states are '
      f'{"" if began_on_disk else "not "}on disk',
      expected='disk' if began_on_disk else 'device or host',
    )


def state_shapes(experiment: Experiment, step: int) -> State:
  """Return the shapes in a file of the stage that ran round `step`."""
  shapes, last = stage_shapes(experiment.stages, experiment.train), 0
  for stage, server, clients in shapes:
    last += stage.rounds
    if step <= last:
      clients = experiment.placement.file_shapes(clients)
      return _state_of(experiment, stage, (server, clients))
  raise AssertionError(f'round {step} of {last}')
