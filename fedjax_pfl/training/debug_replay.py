"""Rounds of a diverged run once more, to find the first bad step.

`--config.debug=True` on the directory of a run without it: the rounds after the
last checkpoint run client after client, without compilation. Nothing is
written.
"""

import contextlib
from typing import NoReturn

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.runs.run_dir import load_config
from fedjax_pfl.settings import replace
from fedjax_pfl.training import multihost
from fedjax_pfl.training.advance import make_advance
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.cadence import cadence
from fedjax_pfl.training.seed_run import (
  SeedRun,
  open_run,
  random_streams,
  start_stage,
)
from fedjax_pfl.training.state import first_state, stage_bounds


def was_started_without_debug(workdir: str) -> bool:
  """Return whether the directory has a run that was started without debug."""
  try:
    started = load_config(workdir)['config']['debug'] is False
  except (BadInput, TypeError, KeyError):  # none, or one that is refused later
    started = False
  return bool(multihost.any_of(multihost.is_first() and started))


def replay(experiment: Experiment, workdir: str) -> NoReturn:
  """Replay the rounds from the last checkpoint to where the next one would be.

  Raises an error that names the first bad step, or one that there is none.
  """
  settings = replace(experiment.settings, debug=False)
  run = open_run(experiment, settings, workdir)
  with contextlib.closing(run):
    keys, train_data = random_streams(settings.seed), experiment.train
    state, done = first_state(experiment, run, keys['states'], writes=False)
    seed_run = SeedRun(experiment, run, keys, None, state, done, train_data)
    every = cadence(settings, experiment.rounds)
    for stage, first, last in stage_bounds(experiment.stages):
      seed_run = start_stage(seed_run, stage, first, last)
      if not first <= seed_run.done < last:
        continue
      stop = min(last, (seed_run.done // every.save + 1) * every.save)
      rounds = f'rounds {seed_run.done + 1} to {stop}'
      progress.log(f'Replaying {rounds}, client after client.')
      make_advance([seed_run], stage, first)([seed_run], stop)
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
