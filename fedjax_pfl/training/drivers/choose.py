"""Which driver runs the rounds of a stage: chosen once, as the stage starts."""

from collections.abc import Sequence

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.cohort import is_on_host
from fedjax_pfl.training.build import mesh_of
from fedjax_pfl.training.drivers import (
  compiled,
  debug,
  host_offload,
  multi_seed,
)
from fedjax_pfl.training.drivers.driver import RoundDriver, in_turn
from fedjax_pfl.training.seed_run import SeedRun, make_call


def choose_driver(seed_runs: Sequence[SeedRun], stage: Stage) -> RoundDriver:
  """Return the driver for seeds of one experiment that are in this stage.

  Seeds run side by side where that is faster and memory holds several.
  """
  experiment = seed_runs[0].experiment
  if experiment.settings.system.debug:
    return in_turn(debug.make_rounds(stage))
  if is_on_host(experiment.train):
    return in_turn(host_offload.make_rounds(experiment, stage))
  mesh = mesh_of(experiment.settings.system)
  rounds_fn = compiled.make_rounds(experiment, stage, mesh)
  if len(seed_runs) == 1:
    return in_turn(rounds_fn)
  call = make_call(seed_runs[0], stage, seed_runs[0].done + 1)
  number = multi_seed.num_side_by_side(experiment, stage, call)
  return multi_seed.side_by_side(rounds_fn, number, mesh)
