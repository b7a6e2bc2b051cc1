"""Rounds of a diverged run once more, to find the first bad step.

`--config.debug=True` on the directory of a run without it: the rounds after the
last checkpoint run client after client, without compilation. Nothing is
written.
"""

import contextlib

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.runs.run_dir import load_config
from fedjax_pfl.settings import replace
from fedjax_pfl.training import multihost
from fedjax_pfl.training.advance import Place, advance, cadence
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.state import (
  open_run,
  stage_bounds,
  start_stage,
  start_training,
)


def replay_if_started_without(
  experiment: Experiment, workdir: str, program: Program
) -> None:
  """Replay a run that was started without debug, to where the next save is.

  Raises an error that names the first bad step, or one that there is none.
  """
  if not _was_started_without_debug(workdir):
    return
  settings = replace(experiment.settings, debug=False)
  run = open_run(experiment, settings, workdir)
  with contextlib.closing(run):
    training = start_training(experiment, run, program, writes=False)
    save = cadence(settings, experiment.rounds).save
    for number, bounds in enumerate(stage_bounds(experiment.stages)):
      place, training = Place(number, *bounds), start_stage(training, *bounds)
      if not place.first <= training.done < place.last:
        continue
      stop = min(place.last, (training.done // save + 1) * save)
      rounds = f'rounds {training.done + 1} to {stop}'
      progress.log(f'Replaying {rounds}, client after client.')
      advance(training, place, stop)
      raise bad_input(
        'debug',
        got=f'finite numbers in {rounds} of {run.path}, replayed client after '
        'client',
        expected='a run that diverged in these rounds',
        choices=['the same command without debug, which continues the run'],
        cause='the run stopped for another reason',
      )
    raise bad_input(
      'debug',
      got=f'{run.path}, whose rounds are all done',
      expected='a run that diverged',
      choices=['another --workdir, for a run with debug from the start'],
      cause='the directory of a run that did not diverge',
    )


def _was_started_without_debug(workdir: str) -> bool:
  """Return whether the directory has a run that was started without debug."""
  try:
    started = load_config(workdir)['config']['debug'] is False
  except (BadInput, TypeError, KeyError):  # none, or one that is refused later
    started = False
  return bool(multihost.any_of(multihost.is_first() and started))
