"""List the time and the memory of every cell of a table on this machine.

A round is compiled and timed: on no example, and on one batch of as many
clients as run side by side. With r rounds, C clients a round, c of them side by
side, and b batches a client:

  seconds = compile + r (t_0 + b C/c (t_batch - t_0))

Evaluations come on top. The load of other processes is in the seconds, not in
the bytes. Blank images stand in for those that are not on this machine.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.reproduction import execute
from experiments.reproduction.cells import Cell, Table, field
from experiments.reproduction.plan import evaluation_of
from experiments.reproduction.results import Results
from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.chunking import chunk_size
from fedjax_pfl.federated.rounds import begin, make_round
from fedjax_pfl.results.page.styles import display_name
from fedjax_pfl.results.tables.text_table import align, duration
from fedjax_pfl.settings import Settings, flat_config
from fedjax_pfl.training.blank import load_blank
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.memory_estimate import program_bytes
from fedjax_pfl.training.outline import outline
from fedjax_pfl.training.state import random_streams

COLUMNS = ('state', 'time', 'memory')
REPEATS = 3  # the fastest counts: other processes only slow it down
# Fields that change only which examples a client has.
PARTITION_ONLY = {
  *('seed', 'shards_per_client', 'dirichlet_beta'),
  *('test_shards_per_client', 'init_from'),
}


class Forecast(NamedTuple):
  """The time and the memory of a training."""

  seconds: float
  bytes: int  # of the largest program among its stages
  rounds: int  # of all stages


def list_costs(
  table: Table, cells: Sequence[Cell], seeds: Sequence[int], results: Results
) -> None:
  """Log a line for every cell: what names it, its state, time and memory.

  Time and memory are what a cell adds to those above it.
  """
  names, total = table.key_fields, 0.0
  lines = [(*(name.replace('_', ' ') for name in names), *COLUMNS)]
  counted: set[str] = set()  # trainings
  measured: dict[str, Forecast] = {}  # by program
  data: set[str] = set()
  progress.log(
    f'{len(cells)} cells. Programs are measured first, a minute or so each.'
  )
  for cell in cells:
    wanted = [evaluation_of(cell, seed) for seed in seeds]
    state, missing, trainings = execute.what_is_left(wanted, results)
    new = [one for one in trainings if one.identity not in counted]
    counted |= {one.identity for one in new}
    data |= {one.settings.data.dataset for one in new}
    time_and_memory = '-', '-'
    if new:
      saved = [execute.saved_round(one, results) for one in new]
      costs = [_forecast(one.settings, measured) for one in new]
      seconds = sum(
        cost.seconds * (1 - rounds / max(cost.rounds, 1))
        for cost, rounds in zip(costs, saved, strict=True)
      )
      total += seconds
      memory = max(cost.bytes for cost in costs) / 2**20
      time_and_memory = duration(seconds), f'{memory:,.0f} MiB'
      words = (f'continue from round {n}' if n else 'train' for n in saved)
      state = ', '.join(dict.fromkeys(words))
    elif missing:
      is_own = all(one.settings == one.training.settings for one in missing)
      trained = (execute.is_trained(one.training, results) for one in missing)
      is_own &= not any(trained)
      state = 'with a cell above' if is_own else 'evaluate'
    values = (field(cell.published, name) for name in names)
    shown = ('-' if value is None else str(value) for value in values)
    lines.append((*shown, state, *time_and_memory))
  progress.log(align(lines))
  progress.log(
    f'{len(cells)} cells, {len(seeds)} seed{"s" * (len(seeds) > 1)}: '
    f'{duration(total)} of training on one device, estimated from a few '
    f'steps. Data: {", ".join(sorted(data)) or "none"}.'
  )


def _forecast(settings: Settings, measured: dict[str, Forecast]) -> Forecast:
  """Return the forecast of a training; every program is measured once.

  That takes seconds to a minute.
  """
  fields = flat_config(settings).items()
  program = repr([pair for pair in fields if pair[0] not in PARTITION_ONLY])
  if program not in measured:
    name = display_name(settings.algorithm)
    progress.log(f'Measuring {name}: {len(measured) + 1}')
    experiment, state, costs = load_blank(outline(settings)), None, []
    key = random_streams(settings.seed)['states']
    for stage in experiment.stages:
      if state is None:
        state = begin(stage, experiment.train, key)
      else:
        state = stage.initialize(*state, experiment.train)
      costs.append(_measure(experiment, stage, state))
    seconds, sizes = zip(*costs, strict=True)
    measured[program] = Forecast(sum(seconds), max(sizes), experiment.rounds)
  return measured[program]


def _measure(
  experiment: Experiment, stage: Stage, state: tuple
) -> tuple[float, int]:
  """Return seconds and bytes of the rounds of a stage from these states."""
  settings = experiment.settings
  key = random_streams(settings.seed)['rounds']
  data = stage.prepare_data(state[0], experiment.train)
  size = experiment.sampler_of(stage).size
  cohort, given = jnp.arange(size), settings.system.clients_per_chunk
  if given == 'auto':
    given = chunk_size('auto', stage.algorithm, *state, cohort, data, key)
  side_by_side = min(given, size)
  began = time.perf_counter()
  round_fn = make_round(
    stage.algorithm, clients_per_chunk=side_by_side, mesh=None
  )
  program = jax.jit(round_fn).lower(*state, cohort, data, key).compile()
  compiled = time.perf_counter() - began

  def run(examples):
    """Return the seconds of the fastest call."""
    count = np.zeros(data.count.shape, np.int32)
    count[:side_by_side] = examples
    fewer, times = data._replace(count=jnp.asarray(count)), []
    for _ in range(REPEATS):
      began = time.perf_counter()
      jax.block_until_ready(program(*state, cohort, fewer, key))
      times.append(time.perf_counter() - began)
    return min(times)

  batch, count = settings.train.batch_size, np.asarray(data.count)
  nothing = run(0)
  of_batch = run(min(batch, count.max())) - nothing
  batches = np.maximum(-(-count // batch), 1).mean()
  seconds = nothing + size / side_by_side * of_batch * float(batches)
  return compiled + stage.rounds * seconds, program_bytes(program)
