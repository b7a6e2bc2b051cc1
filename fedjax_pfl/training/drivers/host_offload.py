"""Rounds for clients on the host: see federated/host_offload.py."""

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.host_offload import make_host_rounds
from fedjax_pfl.federated.rounds import Round
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.drivers.chunk_limit import limit_chunk


def make_rounds(experiment: Experiment, stage: Stage) -> Round:
  """Return rounds of cohorts [T, C] from arrays on the host."""
  return make_host_rounds(
    stage.algorithm,
    experiment.settings.system.clients_per_chunk,
    limit=limit_chunk(experiment, stage),
    log=progress.log,
  )
