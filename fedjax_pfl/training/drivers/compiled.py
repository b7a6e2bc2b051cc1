"""Rounds in one compiled program: all T rounds of a call are one dispatch."""

from jax.sharding import Mesh

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated import rounds
from fedjax_pfl.federated.chunking import auto_chunk
from fedjax_pfl.federated.oom_backoff import until_it_fits
from fedjax_pfl.federated.sharding import spread
from fedjax_pfl.training.drivers.chunk_limit import chunk_of, limit_chunk
from fedjax_pfl.training.experiment import Experiment


def make_rounds(
  experiment: Experiment, stage: Stage, mesh: Mesh | None = None
) -> rounds.Round:
  """Return rounds of cohorts [T, C], with chunks of clients that fit memory."""
  algorithm = stage.algorithm
  chunk = chunk_of(experiment)
  limit = limit_chunk(experiment, stage, chunk)

  def make(chunk):
    round_fn = rounds.make_round(algorithm, clients_per_chunk=chunk, mesh=mesh)
    return spread(rounds.make_rounds(round_fn), mesh)

  def choose(server, clients, cohorts, data, key):
    fitting = auto_chunk(algorithm, server, clients, cohorts[0], data, key)
    return min(fitting, limit)

  return until_it_fits(make, chunk, choose, progress.log)
