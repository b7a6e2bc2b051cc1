"""The loop of a run: stages x rounds, from one stop to the next.

What a resumed run needs is its last checkpoint (state.py); every random number
follows from the seed and the round.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.sharding import describe
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import to_config
from fedjax_pfl.training import (
  debug_replay,
  divergence,
  interruption,
  memory_estimate,
  multihost,
)
from fedjax_pfl.training.advance import make_advance
from fedjax_pfl.training.build import Experiment, mesh_of
from fedjax_pfl.training.cadence import cadence, evaluate_start, record
from fedjax_pfl.training.finalize import finalize
from fedjax_pfl.training.multi_seed import align, check_seeds
from fedjax_pfl.training.one_program import divide
from fedjax_pfl.training.seed_run import (
  SeedRun,
  open_run,
  start_seed_runs,
  start_stage,
)
from fedjax_pfl.training.state import save_state, stage_bounds


def train(experiment: Experiment, workdir: str) -> dict[str, Any]:
  """Run the experiment in a directory, or continue it; return its result.

  A run that was stopped continues after its last checkpoint, with the bits of
  an unbroken one. A finished run is not changed.

  Args:
    experiment: what `build_experiment` returns.
    workdir: the run directory: new, empty, or of the same experiment.

  Returns:
    result.json: 'views' has the summary of every view, 'seconds' the time.

  >>> import tempfile
  >>> experiment = pfl.build_experiment({
  ...   'dataset': 'digits', 'model': 'convnet3', 'num_clients': 4,
  ...   'max_train_examples': 80, 'rounds': 1, 'local_epochs': 1,
  ...   'batch_size': 20, 'views': ('initial',), 'eval_views': (),
  ... })
  >>> result = pfl.train(experiment, tempfile.mkdtemp())
  round 1/1...
  >>> result['status'], result['rounds'], list(result['views'])
  ('finished', 1, ['initial'])
  """
  (result,) = train_seeds([experiment], [workdir])
  return result


def train_seeds(
  experiments: Sequence[Experiment], workdirs: Sequence[str]
) -> list[dict[str, Any]]:
  """Run or continue seeds of one experiment together; return the results.

  Each leaves in its directory what `train` leaves, and either function
  continues what the other started. Finished seeds are left out.

  >>> experiments = [build_experiment({**config, 'seed': s}) for s in (0, 1)]
  >>> train_seeds(experiments, ['runs/seed0', 'runs/seed1'])
  """
  check_seeds(experiments, workdirs)
  memory_estimate.check_room(experiments[0])
  groups = divide(experiments)
  if len(groups) > 1:
    return _train_in_turn(experiments, workdirs, groups)
  runs = []
  with interruption.watching(runs), contextlib.ExitStack() as stack:
    check_processes(experiments)
    for experiment, workdir in zip(experiments, workdirs, strict=True):
      debug = experiment.settings.system.debug
      if debug and debug_replay.was_started_without_debug(workdir):
        debug_replay.replay(experiment, workdir)
    for experiment, workdir in zip(experiments, workdirs, strict=True):
      run = open_run(experiment, experiment.settings, workdir)
      stack.callback(run.close)
      runs.append(run)
    return train_runs(experiments, runs)


def _train_in_turn(
  experiments: Sequence[Experiment],
  workdirs: Sequence[str],
  groups: Sequence[Sequence[int]],
) -> list[dict[str, Any]]:
  """Train groups of places, one after the other; return all results."""
  results: dict[int, dict[str, Any]] = {}
  for places in groups:
    own = (
      [every[place] for place in places] for every in (experiments, workdirs)
    )
    results |= zip(places, train_seeds(*own), strict=True)
  return [results[place] for place in range(len(experiments))]


def check_processes(experiments: Sequence[Experiment]) -> None:
  """Refuse processes of one run whose configs, data or jax differ."""
  compared = [
    {
      **to_config(experiment.settings),
      'data_dir': '',
      'data': experiment.data_id,
    }
    for experiment in experiments
  ]
  multihost.check_alike('config', [*compared, jax.__version__])


def train_runs(
  experiments: Sequence[Experiment], runs: Sequence[Run]
) -> list[dict[str, Any]]:
  """Run or continue seeds in their open directories; return the results."""
  finished = [run for run in runs if run.status() == 'finished']
  if finished:
    names = ', '.join(str(run.path) for run in finished)
    verb = 'is' if len(finished) == 1 else 'are'
    progress.log(f'{names} {verb} finished: nothing to do.')
  seeds = [  # finished ones count for the shapes: these are always the same
    (experiment, run)
    for experiment, run in zip(align(experiments), runs, strict=True)
    if run not in finished
  ]
  if seeds:
    for seed_run in run_rounds(start_seed_runs(seeds)):
      finalize(seed_run)
  return [run.result() for run in runs]


def run_rounds(seed_runs: Sequence[SeedRun]) -> list[SeedRun]:
  """Return the seed runs after their last round.

  Those with the fewest rounds advance together, until they have done as many
  as the next one.
  """
  experiment = seed_runs[0].experiment
  start = min(seed_run.done for seed_run in seed_runs)
  log_start(seed_runs)
  with (
    interruption.catch_signals() as signal_fn,
    progress.progress('training', experiment.rounds, start=start) as bar,
  ):
    for stage, first, last in stage_bounds(experiment.stages):
      seed_runs = [
        evaluate_start(start_stage(seed_run, stage, first, last), stage, first)
        for seed_run in seed_runs
      ]
      if any(seed_run.done < last for seed_run in seed_runs):
        if stage.note:
          progress.log(stage.note)
        for advanced in run_stage(seed_runs, stage, first, last, bar):
          seed_runs = advanced
          if number := multihost.any_of(signal_fn()):
            save_and_stop(seed_runs, number)
  return seed_runs


def log_start(seed_runs: Sequence[SeedRun]) -> None:
  """Log the devices, and after which round runs are continued."""
  experiment = seed_runs[0].experiment
  done, rounds = min(own.done for own in seed_runs), experiment.rounds
  if devices := describe(mesh_of(experiment.settings.system)):
    progress.log(devices)
  ahead = sum(seed_run.done > done for seed_run in seed_runs)
  if 0 < done < rounds or ahead:
    more = f'; {ahead} of {len(seed_runs)} seeds are ahead and wait'
    progress.log(
      f'Continuing after round {done} of {rounds}{more if ahead else ""}.'
    )


def run_stage(
  seed_runs: Sequence[SeedRun],
  stage: Stage,
  first: int,
  last: int,
  bar: progress.Bar,
) -> Iterator[list[SeedRun]]:
  """Yield the seed runs after every stop up to the last round of a stage."""
  experiment = seed_runs[0].experiment
  every = cadence(experiment.settings, experiment.rounds)
  advance_fn = make_advance(
    [seed_run for seed_run in seed_runs if seed_run.done < last], stage, first
  )
  while (done := min(seed_run.done for seed_run in seed_runs)) < last:
    stop = every.next_stop(done, last)
    behind = [seed_run for seed_run in seed_runs if seed_run.done == done]
    advanced = advance_fn(behind, stop)
    bar.update(
      stop,
      **{
        name: float(np.mean([numbers[name] for _, numbers in advanced]))
        for name in ('loss', 'images_per_second')
      },
    )
    recorded = (
      record(
        seed_run._replace(state=state, done=stop), numbers, stage, last, every
      )
      for seed_run, (state, numbers) in zip(behind, advanced, strict=True)
    )
    seed_runs = [
      next(recorded) if seed_run.done == done else seed_run
      for seed_run in seed_runs
    ]
    yield seed_runs


def save_and_stop(seed_runs: Sequence[SeedRun], number: int) -> NoReturn:
  """Save a checkpoint of every seed run, log it, and stop after a signal."""
  for seed_run in seed_runs:
    experiment, run, done = seed_run.experiment, seed_run.run, seed_run.done
    if done and not run.has_checkpoint(done):
      save_state(experiment, run, seed_run.state, done)
  done = sorted({seed_run.done for seed_run in seed_runs})
  rounds = ' and '.join(map(str, done))
  progress.log(f'Saved after round {rounds}; the same command continues.')
  raise interruption.Stopped(number, logged=True)


def train_together(
  runs: Sequence[tuple[Experiment, Path]], log: Callable[[str], None]
) -> None:
  """Train the runs of one program; without those that diverge."""
  while runs:
    settings = [experiment.settings for experiment, _ in runs]
    seeds = dict.fromkeys(one.seed for one in settings)
    words = f'training seed {", ".join(map(str, seeds))}'
    if len(runs) > len(seeds):
      words += f' of several settings, {len(runs)} runs'
    log(f'{settings[0].algorithm}: {words}')
    try:
      train_seeds(
        [experiment for experiment, _ in runs], [str(path) for _, path in runs]
      )
      return
    except divergence.Diverged as error:
      divergence.record(error)
      log(f'{error}')
      left = [run for run in runs if run[1] != error.workdir]
      assert len(left) == len(runs) - 1, error.workdir
      runs = left  # they continue after their last checkpoints
