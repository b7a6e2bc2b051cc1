"""Several seeds of one experiment, each in a seed_run of its own.

A seed_run is an ordinary run: its data are dealt, its model begun and its
clients drawn by its own seed. Shared are the images and the compiled programs.
Where an accelerator has room, seed_runs run side by side, on a leading axis
[S]; on a CPU one after the other, each by the program of a single run: with an
axis [S] rounds took 0 to 40 % longer there, and compiling a quarter to two
thirds.
"""

from collections.abc import Callable, Sequence
from os import fspath
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.algorithm import Client, Metrics, Server, Stage, as_stored
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.chunking import device_memory
from fedjax_pfl.federated.cohort import is_on_host
from fedjax_pfl.federated.oom_backoff import is_out_of_memory
from fedjax_pfl.federated.rounds import Round
from fedjax_pfl.federated.sharding import replicate
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import to_config
from fedjax_pfl.training.evaluators import Evaluators
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.state import State

# The settings in which seeds may differ: the run to start from has one, too.
OWN = ('seed', 'init_from')

# What a round takes: (server, clients, cohorts [T, C], data, key).
Call = tuple[Server, Client, Array, ClientData, Key]
Result = tuple[Server, Client, Metrics]


class SeedRun(NamedTuple):
  """One seed on its way."""

  experiment: Experiment
  run: Run
  keys: dict[str, Key]
  evaluators: Evaluators
  state: State
  done: int  # rounds
  data: ClientData  # what the present stage trains on


def check_seeds(
  experiments: Sequence[Experiment], workdirs: Sequence[str]
) -> None:
  """Refuse what are not seeds of one experiment, each with its directory."""
  flat = [flatten(to_config(one.settings)) for one in experiments]
  names = [
    name
    for name in dict.fromkeys(name for one in flat for name in one)
    if name not in OWN
    and any(one.get(name) != flat[0].get(name) for one in flat)
  ]
  if names:
    raise bad_input(
      'experiments',
      got={name: [one.get(name) for one in flat] for name in names},
      expected=f'the same settings in all of them but for {" and ".join(OWN)}',
      cause='seeds of several experiments: train those one after the other',
    )
  paths = [fspath(workdir) for workdir in workdirs]
  if len(set(paths)) < len(paths) or len(paths) != len(experiments):
    raise bad_input(
      'workdirs',
      got=paths,
      expected=f'{len(experiments)} directories, another one for each seed',
      cause='a name without the seed in it',
    )


def share_programs(experiments: Sequence[Experiment]) -> bool:
  """Return whether what is compiled for one seed serves them all.

  It does unless functions hold what is a seed's own: the draw of a server
  with data of its own, or the model of the run that it starts from.
  """
  first = experiments[0]
  starts = {experiment.settings.init_from for experiment in experiments}
  knows = any(stage.knows_seed for stage in first.stages)
  return len(experiments) == 1 or (len(starts) == 1 and not knows)


def align(experiments: Sequence[Experiment]) -> list[Experiment]:
  """Return the seeds with data of one shape, on the same images.

  Clients are padded to the widest of any seed, which moves results by no more
  than rounding; the images and the functions are those of the first.
  """
  first = experiments[0]
  for other in experiments:
    assert other.dataset.fingerprint == first.dataset.fingerprint
  train = _align_data([experiment.train for experiment in experiments])
  test = _align_data([experiment.test for experiment in experiments])
  return [
    experiment._replace(
      train=train[seed], test=test[seed], task=first.task, stages=first.stages
    )
    for seed, experiment in enumerate(experiments)
  ]


def _align_data(tables: Sequence[ClientData]) -> list[ClientData]:
  first = tables[0]
  width = max(table.index.shape[1] for table in tables)
  return [
    ClientData(first.x, first.y, _widen(table.index, width), table.count)
    for table in tables
  ]


def _widen(index: Array, width: int) -> Array:
  """Return the rows [K, N] with N = width; the padding is a valid index."""
  missing = width - index.shape[1]
  pad = np.pad if isinstance(index, np.ndarray) else jnp.pad
  return pad(index, ((0, 0), (0, missing))) if missing else index


def num_side_by_side(experiment: Experiment, stage: Stage, call: Call) -> int:
  """Return how many seeds should run side by side: as many as fit.

  One on a CPU, where clients live on the host, and where seeds do not train on
  the same images.
  """
  chunk = experiment.settings.system.clients_per_chunk
  if experiment.settings.system.debug or stage.prepare_data is not as_stored:
    return 1
  if is_on_host(experiment.train):
    return 1
  server, clients, cohorts, data, key = call
  cohort = cohorts[0]
  memory = device_memory(stage.algorithm, server, clients, cohort, data, key)
  if memory is None:
    return 1
  size = cohort.shape[0] if chunk == 'auto' else min(int(chunk), cohort.size)
  states = 2 * trees.num_bytes((server, clients))  # before and after
  return max(1, memory.num_fitting(size * memory.per_client + states))


def side_by_side(
  rounds_fn: Round, mesh: Mesh | None = None
) -> Callable[[Sequence[Call]], list[Result]]:
  """Return calls -> their results, all calls in one compiled program.

  Their data have the same images. A single call has no axis of seeds, nor
  have calls that memory does not hold at once.
  """

  failed = []  # by lack of memory

  def together(calls):
    images = calls[0][3]

    def one(server, clients, cohorts, index, count, key):
      data = images._replace(index=index, count=count)
      return rounds_fn(server, clients, cohorts, data, key)

    rows = [
      (server, clients, cohorts, data.index, data.count, key)
      for server, clients, cohorts, data, key in calls
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)  # [S, ...]
    results = jax.vmap(one)(*stacked)
    return [trees.gather(results, seed) for seed in range(len(calls))]

  together = replicate(jax.jit(together), mesh)

  def play(calls):
    if len(calls) > 1 and not failed:
      try:
        return jax.block_until_ready(together(calls))
      except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
          raise
        failed.append(error)
        progress.log(
          f'{len(calls)} seeds side by side are more than memory holds: going '
          'on with one after the other.'
        )
    return [rounds_fn(*call) for call in calls]

  return play
