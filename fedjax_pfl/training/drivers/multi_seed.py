"""Several seeds in one compiled program, on a leading axis [S].

On an accelerator with enough memory. On a CPU seeds run one after the other,
each by the program of a single seed: with an axis [S] rounds took 0 to 40 %
longer there, and compiling a quarter to two thirds.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.algorithm import Stage, as_stored
from fedjax_pfl.federated.chunking import device_memory
from fedjax_pfl.federated.oom_backoff import is_out_of_memory
from fedjax_pfl.federated.rounds import Round
from fedjax_pfl.federated.sharding import replicate
from fedjax_pfl.training.build import Experiment, mesh_of
from fedjax_pfl.training.drivers.driver import (
  Call,
  RoundDriver,
  run_in_turn,
  to_results,
)


def side_by_side(
  rounds_fn: Round, number: int, mesh: Mesh | None = None
) -> RoundDriver:
  """Return the driver that runs up to `number` calls in one program.

  Their data share the images. A single call has no axis [S]; calls that do not
  fit memory at once run one after the other, from then on.
  """
  stacked_fn = replicate(jax.jit(_stacked(rounds_fn)), mesh)
  errors = []  # out of memory

  def run(calls):
    if len(calls) > 1 and not errors:
      try:
        return to_results(jax.block_until_ready(stacked_fn(calls)))
      except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
          raise
        errors.append(error)
        progress.log(
          f'{len(calls)} seeds side by side do not fit memory: continuing with '
          'one after the other.'
        )
    return run_in_turn(rounds_fn, calls)

  return RoundDriver(run, number)


def _stacked(rounds_fn: Round) -> Callable[[Sequence[Call]], list[tuple]]:
  """Return calls -> what rounds_fn returns for each, by one vmap."""

  def together(calls):
    images = calls[0].data

    def rounds_of_seed(server, clients, cohorts, index, count, key):
      data = images._replace(index=index, count=count)
      return rounds_fn(server, clients, cohorts, data, key)

    rows = [
      (server, clients, cohorts, data.index, data.count, key)
      for server, clients, cohorts, data, key in calls
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)  # [S, ...]
    results = jax.vmap(rounds_of_seed)(*stacked)
    return [trees.gather(results, seed) for seed in range(len(calls))]

  return together


def num_side_by_side(experiment: Experiment, stage: Stage, call: Call) -> int:
  """Return how many seeds should run side by side: as many as fit memory.

  One where clients run one at a time, too (federated/chunking.py), and where
  seeds do not train on the same images.
  """
  if stage.prepare_data is not as_stored:
    return 1
  cohort = call.cohorts[0]
  memory = device_memory(
    *(stage.algorithm, call.server, call.clients, cohort, call.data, call.key)
  )
  if memory is None:
    return 1
  chunk = experiment.settings.system.clients_per_chunk
  size = cohort.shape[0] if chunk == 'auto' else min(int(chunk), cohort.size)
  mesh = mesh_of(experiment.settings.system)
  own = trees.num_bytes(call.clients) // (mesh.size if mesh else 1)
  states = 2 * (trees.num_bytes(call.server) + own)  # before and after
  return max(1, memory.num_fitting(size * memory.per_client + states))
