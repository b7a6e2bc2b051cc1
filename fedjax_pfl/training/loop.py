"""The run: stages x rounds, compiled; logged, evaluated, saved, resumed.

The only place with clocks and files, but for what seed_runs take (advance.py).
What a resumed run needs is the last checkpoint (state.py); every random number
follows from the seed and the round. Several seeds go in seed_runs
(seed_runs.py).
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Key, Scores
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.evaluation.test_selection import best_views
from fedjax_pfl.federated.sharding import describe
from fedjax_pfl.runs.run_dir import Run, load_config, load_metrics
from fedjax_pfl.settings import RESUMABLE, Settings, replace, to_config
from fedjax_pfl.training import (
  lost_process,
  memory_estimate,
  multihost,
  preemption,
)
from fedjax_pfl.training.evaluators import accuracies, make_evaluators
from fedjax_pfl.training.experiment import Experiment, mesh_of
from fedjax_pfl.training.global_evaluator import last_ones
from fedjax_pfl.training.model_export import Models
from fedjax_pfl.training.multi_seed import (
  SeedRun,
  align,
  check_seeds,
  share_programs,
)
from fedjax_pfl.training.advance import Numbers, make_advance
from fedjax_pfl.training.state import (
  State,
  first_state,
  initialize_stage,
  stage_bounds,
  summarise_best,
  update_test_best,
)

# One word a stream of random numbers; their order is part of every result.
STREAMS = ('states', 'cohorts', 'rounds', 'evaluation')


class Cadence(NamedTuple):
  """After how many rounds what is done."""

  log: int
  evaluate: int
  save: int

  def next_stop(self, done: int, last: int) -> int:
    """Return the round up to which the next compiled call may run."""
    return min(last, *((done // every + 1) * every for every in self))


def train(experiment: Experiment, workdir: str) -> dict[str, Any]:
  """Run or continue the experiment in its directory; return result.json.

  A finished run says so and does nothing.
  """
  (result,) = train_seeds([experiment], [workdir])
  return result


def train_seeds(
  experiments: Sequence[Experiment], workdirs: Sequence[str]
) -> list[dict[str, Any]]:
  """Run or continue seeds of one experiment, all at once; return the results.

  Each leaves in its directory what `train` leaves, and one can go on where the
  other stopped. Finished seeds are left out.

  >>> experiments = [build_experiment({**config, 'seed': s}) for s in (0, 1)]
  >>> train_seeds(experiments, ['runs/seed0', 'runs/seed1'])
  """
  check_seeds(experiments, workdirs)
  memory_estimate.check_room(experiments[0])
  if not share_programs(experiments):
    return [train(*one) for one in zip(experiments, workdirs, strict=True)]
  runs = []
  with lost_process.watching(runs), contextlib.ExitStack() as stack:
    check_processes(experiments)
    for experiment, workdir in zip(experiments, workdirs, strict=True):
      if experiment.settings.system.debug and was_begun_without_debug(workdir):
        replay(experiment, workdir)
    for experiment, workdir in zip(experiments, workdirs, strict=True):
      run = open_run(experiment, experiment.settings, workdir)
      stack.callback(run.close)
      runs.append(run)
    return train_runs(experiments, runs)


def check_processes(experiments: Sequence[Experiment]) -> None:
  """Refuse processes of one run that do not do the same."""
  told = [
    {
      **to_config(experiment.settings),
      'data_dir': '',
      'data': experiment.data_id,
    }
    for experiment in experiments
  ]
  multihost.check_alike('config', [*told, jax.__version__])


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
    for seed_run in run_rounds(begin_seed_runs(seeds)):
      finish(seed_run)
  return [run.result() for run in runs]


def open_run(experiment: Experiment, settings: Settings, workdir: str) -> Run:
  """Return the run in this directory, begun now or to be continued."""
  return multihost.open_run(
    workdir,
    to_config(settings),
    data=experiment.data_id,
    log=progress.log,
    resumable=RESUMABLE,
  )


def was_begun_without_debug(workdir: str) -> bool:
  """Return whether a run that is not for debugging lies there."""
  try:
    begun = load_config(workdir)['config']['debug'] is False
  except (BadInput, TypeError, KeyError):  # none, or one that is refused later
    begun = False
  return bool(multihost.any_of(multihost.is_first() and begun))


def replay(experiment: Experiment, workdir: str) -> NoReturn:
  """Play what comes after the last good checkpoint, client by client.

  Up to where the next one would be saved. Ends in the sentence that names the
  first bad step, or in one that says that there is none; writes nothing.
  """
  settings = replace(experiment.settings, debug=False)
  run = open_run(experiment, settings, workdir)
  with contextlib.closing(run):
    keys, train_data = random_streams(settings.seed), experiment.train
    state, done = first_state(experiment, run, keys['states'], writes=False)
    seed_run = SeedRun(experiment, run, keys, None, state, done, train_data)
    every = cadence(settings, experiment.rounds)
    for stage, first, last in stage_bounds(experiment.stages):
      seed_run = enter_stage(seed_run, stage, first, last)
      if not first <= seed_run.done < last:
        continue
      stop = min(last, (seed_run.done // every.save + 1) * every.save)
      rounds = f'rounds {seed_run.done + 1} to {stop}'
      progress.log(f'Playing {rounds} once more, client by client.')
      make_advance([seed_run], stage, first)([seed_run], stop)
      raise bad_input(
        'debug',
        got=f'finite numbers in {rounds} of {run.path}, client by client',
        expected='a run that lost its numbers there',
        choices=['the same command without debug, which goes on'],
        cause='the run stopped for another reason',
      )
    raise bad_input(
      'debug',
      got=f'{run.path}, whose rounds are all done',
      expected='a run that lost its numbers',
      choices=['another --workdir, for a run with debug from the start'],
      cause='the directory of a run that came to its end',
    )


def random_streams(seed: int) -> dict[str, Key]:
  """Return the key of every stream of random numbers of a run."""
  keys = jax.random.split(jax.random.key(seed), len(STREAMS))
  return dict(zip(STREAMS, keys, strict=True))


def cadence(settings: Settings, rounds: int) -> Cadence:
  """Return the cadence of a config; 0 means a choice that suits the run."""
  evaluate = settings.evaluation.eval_every or max(1, rounds // 16)
  # On a CPU a round takes seconds, and a dispatch costs nothing beside it.
  log = 1 if jax.default_backend() == 'cpu' else evaluate
  return Cadence(
    settings.system.log_every or log,
    evaluate,
    settings.system.checkpoint_every or evaluate,
  )


def begin_seed_runs(seeds: Sequence[tuple[Experiment, Run]]) -> list[SeedRun]:
  """Return a seed_run for each seed, where its run stopped."""
  keys = [random_streams(one.settings.seed) for one, _ in seeds]
  evaluators = make_evaluators(
    [experiment for experiment, _ in seeds], [own['evaluation'] for own in keys]
  )
  seed_runs = []
  for (experiment, run), *own in zip(seeds, keys, evaluators, strict=True):
    state, done = first_state(experiment, run, own[0]['states'])
    seed_runs.append(
      SeedRun(experiment, run, *own, state, done, experiment.train)
    )
  return seed_runs


def run_rounds(seed_runs: Sequence[SeedRun]) -> list[SeedRun]:
  """Return the seed_runs after their last round.

  Those at the lowest round move, all at once, until they are where another
  one waits.
  """
  experiment, start = (
    seed_runs[0].experiment,
    min(seed_run.done for seed_run in seed_runs),
  )
  tell_start(seed_runs)
  with (
    preemption.asked() as asked_fn,
    progress.progress('training', experiment.rounds, start=start) as bar,
  ):
    for stage, first, last in stage_bounds(experiment.stages):
      seed_runs = [
        enter_stage(seed_run, stage, first, last) for seed_run in seed_runs
      ]
      if any(seed_run.done < last for seed_run in seed_runs):
        if stage.note:
          progress.log(stage.note)
        for moved in run_stage(seed_runs, stage, first, last, bar):
          seed_runs = moved
          if number := multihost.any_of(asked_fn()):
            save_and_stop(seed_runs, number)
  return seed_runs


def save_and_stop(seed_runs: Sequence[SeedRun], number: int) -> NoReturn:
  """Save every seed_run where it is, say so, and end as the signal wants it."""
  for seed_run in seed_runs:
    if seed_run.done and not seed_run.run.has_checkpoint(seed_run.done):
      seed_run.run.save_checkpoint(seed_run.done, seed_run.state)
  done = sorted({seed_run.done for seed_run in seed_runs})
  rounds = ' and '.join(map(str, done))
  progress.log(f'Saved after round {rounds}; the same command continues.')
  raise preemption.Stopped(number, told=True)


def tell_start(seed_runs: Sequence[SeedRun]) -> None:
  """Say on how many devices runs go, and where they are continued."""
  done, rounds = (
    min(seed_run.done for seed_run in seed_runs),
    seed_runs[0].experiment.rounds,
  )
  if devices := describe(mesh_of(seed_runs[0].experiment.settings)):
    progress.log(devices)
  ahead = sum(seed_run.done > done for seed_run in seed_runs)
  if 0 < done < rounds or ahead:
    more = f'; {ahead} of {len(seed_runs)} seeds are ahead and wait' * (
      ahead > 0
    )
    progress.log(f'Continuing after round {done} of {rounds}{more}.')


def enter_stage(
  seed_run: SeedRun, stage: Stage, first: int, last: int
) -> SeedRun:
  """Return the seed_run as the stage begins, or goes on; others as they are."""
  if seed_run.done == first and stage is not seed_run.experiment.stages[0]:
    seed_run = seed_run._replace(
      state=initialize_stage(seed_run.experiment, stage, seed_run.state)
    )
  if not first <= seed_run.done < last:
    return seed_run
  data = stage.prepare_data(seed_run.state.server, seed_run.experiment.train)
  return seed_run._replace(data=data)


def run_stage(
  seed_runs: Sequence[SeedRun],
  stage: Stage,
  first: int,
  last: int,
  bar: progress.Bar,
) -> Iterator[list[SeedRun]]:
  """Yield the seed_runs after every stop up to the last round of a stage."""
  experiment = seed_runs[0].experiment
  every = cadence(experiment.settings, experiment.rounds)
  advance_fn = make_advance(
    [seed_run for seed_run in seed_runs if seed_run.done < last], stage, first
  )
  while (done := min(seed_run.done for seed_run in seed_runs)) < last:
    stop = every.next_stop(done, last)
    moving = [seed_run for seed_run in seed_runs if seed_run.done == done]
    advanced = advance_fn(moving, stop)
    bar.update(
      stop,
      **{
        name: float(np.mean([numbers[name] for _, numbers in advanced]))
        for name in ('loss', 'images_per_second')
      },
    )
    moved = (
      record(
        seed_run._replace(state=state, done=stop), numbers, stage, last, every
      )
      for seed_run, (state, numbers) in zip(moving, advanced, strict=True)
    )
    seed_runs = [
      next(moved) if seed_run.done == done else seed_run
      for seed_run in seed_runs
    ]
    yield seed_runs


def record(
  seed_run: SeedRun, numbers: Numbers, stage: Stage, last: int, every: Cadence
) -> SeedRun:
  """Return the seed_run, evaluated, logged and saved where that is due."""
  done, rounds = seed_run.done, seed_run.experiment.rounds
  if done % every.evaluate == 0 or done == rounds:
    seed_run, more = evaluated(seed_run, stage)
    numbers = {**numbers, **more}
  seed_run.run.log(round=done, **numbers)
  if done % every.save == 0 or done == last:
    seed_run.run.save_checkpoint(done, seed_run.state)
  return seed_run


def evaluated(seed_run: SeedRun, stage: Stage) -> tuple[SeedRun, Numbers]:
  """Return the seed_run after an evaluation, and its numbers.

  A stage is evaluated by those of `eval_views` that it has; the last has all.
  """
  began = time.perf_counter()
  experiment, state = seed_run.experiment, seed_run.state
  views = experiment.settings.evaluation.eval_views
  if stage is not experiment.stages[-1]:
    names = view_names(
      stage.algorithm, state.server, state.clients, experiment.train
    )
    views = [view for view in views if view in names]
  scores = seed_run.evaluators.clients(stage, state, views)
  test_best = update_test_best(state.test_best, scores, seed_run.done)
  numbers = accuracies(scores, experiment.train.count)
  whole = seed_run.evaluators.whole(stage, state.server)
  numbers |= {
    f'global/{name}': number
    for name, number in whole.items()
    if name != 'count'
  }
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, test_best=test_best)
  return seed_run._replace(state=state), numbers


def finish(seed_run: SeedRun) -> None:
  """Evaluate the last models, and write all that a finished run has."""
  began = time.perf_counter()
  experiment, state = seed_run.experiment, seed_run.state
  models = Models(experiment, seed_run.run)
  last, views = experiment.stages[-1], experiment.settings.evaluation.views
  scores = seed_run.evaluators.clients(last, state, views, models.keep)
  whole = seed_run.evaluators.whole(last, state.server)
  if multihost.is_first():
    with atomic_files.writing(seed_run.run.path):
      models.save()
    seconds = float(state.seconds) + time.perf_counter() - began
    write_result(experiment, seed_run.run, scores, whole, state, seconds)
  seed_run.run.close()


def write_result(
  experiment: Experiment,
  run: Run,
  scores: dict[str, Scores],
  whole: dict[str, Any],
  state: State,
  seconds: float,
) -> None:
  """Write clients.npz, then result.json: with it the run is over."""
  settings, more = experiment.settings, {}
  if whole:
    metrics = load_metrics(run.path) if experiment.rounds else []
    last = last_ones(metrics, experiment.stages[-1].name)
    more['global'] = {**whole, 'last10': last}
  if families := best_views(scores, experiment.train.count):
    more['test_best_view'] = families
  num_classes = experiment.dataset.num_classes
  run.write_clients(
    scores,
    np.arange(settings.data.num_clients),
    train_count=experiment.train.count,
    train_classes=label_counts_of_clients(experiment.train, num_classes),
    test_classes=label_counts_of_clients(experiment.eval_data[1], num_classes),
  )
  run.write_result(
    algorithm=settings.algorithm,
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=seconds,
    views={
      view: summarise(score, experiment.train.count)
      for view, score in scores.items()
    },
    test_best=summarise_best(
      state.test_best, experiment.eval_data[1].count, experiment.train.count
    ),
    **more,
  )
