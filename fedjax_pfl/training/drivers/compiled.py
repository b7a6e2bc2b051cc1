"""Rounds in one compiled program: all T rounds of a call are one dispatch."""

from jax.sharding import Mesh

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated import rounds
from fedjax_pfl.federated.chunking import chunk_size
from fedjax_pfl.federated.oom_backoff import with_oom_backoff
from fedjax_pfl.federated.sharding import replicate
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.drivers.chunk_limit import limit_chunk


def make_rounds(
  experiment: Experiment, stage: Stage, mesh: Mesh | None = None
) -> rounds.Round:
  """Return rounds of cohorts [T, C], with chunks of clients that fit memory."""
  algorithm = stage.algorithm
  setting = experiment.settings.system.clients_per_chunk
  limit = limit_chunk(experiment, stage)

  def make(chunk):
    round_fn = rounds.make_round(algorithm, clients_per_chunk=chunk, mesh=mesh)
    return replicate(rounds.make_rounds(round_fn), mesh)

  def choose(server, clients, cohorts, data, key):
    args = server, clients, cohorts[0], data, key
    return chunk_size(setting, algorithm, *args, limit=limit)

  return with_oom_backoff(make, setting, choose, progress.log)
