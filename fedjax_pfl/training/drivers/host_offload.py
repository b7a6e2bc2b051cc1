"""Rounds for clients on the host: see federated/host_offload.py."""

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.host_offload import make_fed_rounds
from fedjax_pfl.federated.rounds import Round
from fedjax_pfl.training.drivers.chunk_limit import chunk_of, limit_chunk
from fedjax_pfl.training.experiment import Experiment


def make_rounds(experiment: Experiment, stage: Stage) -> Round:
  """Return rounds of cohorts [T, C] that are fed from arrays on the host."""
  chunk = chunk_of(experiment)
  limit = limit_chunk(experiment, stage, chunk)
  return make_fed_rounds(stage.algorithm, chunk, progress.log, limit)
