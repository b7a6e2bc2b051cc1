"""One seed of an experiment while it runs, and its random streams."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.cohort import sample_cohorts
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import RESUMABLE, Settings, defaults, to_config
from fedjax_pfl.training import multihost
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.drivers.driver import Call
from fedjax_pfl.training.evaluators import Evaluators, make_evaluators
from fedjax_pfl.training.state import State, first_state, initialize_stage

# One word a stream of random numbers; their order is part of every result.
STREAMS = ('states', 'cohorts', 'rounds', 'evaluation')


class SeedRun(NamedTuple):
  """One seed of an experiment between two rounds."""

  experiment: Experiment
  run: Run
  keys: dict[str, Key]
  evaluators: Evaluators | None  # None: it is not evaluated
  state: State
  done: int  # rounds
  data: ClientData  # what the present stage trains on


def random_streams(seed: int) -> dict[str, Key]:
  """Return the key of every stream of random numbers of a run."""
  keys = jax.random.split(jax.random.key(seed), len(STREAMS))
  return dict(zip(STREAMS, keys, strict=True))


def open_run(experiment: Experiment, settings: Settings, workdir: str) -> Run:
  """Return the run in this directory, started now or to be continued."""
  return multihost.open_run(
    workdir,
    to_config(settings),
    data=experiment.data_id,
    log=progress.log,
    resumable=RESUMABLE,
    defaults=defaults(),
    tracker=settings.system.tracker,
  )


def start_seed_runs(seeds: Sequence[tuple[Experiment, Run]]) -> list[SeedRun]:
  """Return a seed run for each seed, from its newest checkpoint if any."""
  keys = [random_streams(own.settings.seed) for own, _ in seeds]
  evaluators = make_evaluators(
    [experiment for experiment, _ in seeds], [own['evaluation'] for own in keys]
  )
  seed_runs = []
  for (experiment, run), *own in zip(seeds, keys, evaluators, strict=True):
    state, done = first_state(experiment, run, own[0]['states'])
    seed_runs.append(
      SeedRun(experiment, run, *own, state, done, experiment.train)
    )
  return seed_runs


def start_stage(
  seed_run: SeedRun, stage: Stage, first: int, last: int
) -> SeedRun:
  """Return the seed run as the stage starts or continues, if it is in it."""
  experiment = seed_run.experiment
  if seed_run.done == first and stage is not experiment.stages[0]:
    state = initialize_stage(experiment, stage, seed_run.state)
    seed_run = seed_run._replace(state=state)
  if not first <= seed_run.done < last:
    return seed_run
  data = stage.prepare_data(seed_run.state.server, experiment.train)
  return seed_run._replace(data=data)


def make_call(seed_run: SeedRun, stage: Stage, stop: int) -> Call:
  """Return the call of the rounds after `seed_run.done` up to `stop`."""
  cohorts = cohorts_of(
    seed_run.experiment, stage, seed_run.keys['cohorts'], seed_run.done, stop
  )
  state, key = seed_run.state, seed_run.keys['rounds']
  return Call(state.server, state.clients, cohorts, seed_run.data, key)


def cohorts_of(
  experiment: Experiment, stage: Stage, key: Key, done: int, stop: int
) -> Array:
  """Return who takes part in the rounds after `done` up to `stop`: [T, C]."""
  num_clients = experiment.settings.data.num_seen_clients
  if stage.full_participation:
    return jnp.tile(jnp.arange(num_clients), (stop - done, 1))
  return sample_cohorts(
    key, done, stop - done, num_clients, experiment.cohort_size
  )
