"""The run: stages x rounds, compiled; logged, evaluated, saved, resumed.

The only place with clocks and files, but for what lanes take (advance.py).
What a resumed run needs is the last checkpoint (state.py); every random number
follows from the seed and the round. Several seeds go in lanes (lanes.py).
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
from fedjax_pfl.federated.sharding import describe, mesh_of
from fedjax_pfl.runs.run_dir import Run, load_config, load_metrics
from fedjax_pfl.training import (
  lost_process,
  memory_estimate,
  multihost,
  preemption,
)
from fedjax_pfl.training.evaluators import accuracies, make_judges
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.global_evaluator import last_ones
from fedjax_pfl.training.model_export import Models
from fedjax_pfl.training.multi_seed import (
  Lane,
  align,
  check_seeds,
  share_programs,
)
from fedjax_pfl.training.round_driver import Numbers, make_advance
from fedjax_pfl.training.state import (
  State,
  first_state,
  fold_best,
  initialize_stage,
  stage_bounds,
  summarise_best,
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

  >>> train_seeds([build({**settings, 'seed': s}) for s in (0, 1)],
  ...             ['runs/seed0', 'runs/seed1'])
  """
  check_seeds(experiments, workdirs)
  memory_estimate.check_room(experiments[0])
  if not share_programs(experiments):
    return [train(*one) for one in zip(experiments, workdirs, strict=True)]
  runs = []
  with lost_process.watching(runs), contextlib.ExitStack() as stack:
    check_processes(experiments)
    for experiment, workdir in zip(experiments, workdirs, strict=True):
      if experiment.settings['debug'] and was_begun_without_debug(workdir):
        replay(experiment, workdir)
    for experiment, workdir in zip(experiments, workdirs, strict=True):
      run = multihost.open_run(
        workdir, experiment.settings, data=experiment.data_id, log=progress.log
      )
      stack.callback(run.close)
      runs.append(run)
    return train_runs(experiments, runs)


def check_processes(experiments: Sequence[Experiment]) -> None:
  """Refuse processes of one run that do not do the same."""
  told = [
    {**experiment.settings, 'data_dir': '', 'data': experiment.data_id}
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
    for lane in run_rounds(begin_lanes(seeds)):
      finish(lane)
  return [run.result() for run in runs]


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
  settings = {**experiment.settings, 'debug': False}
  run = multihost.open_run(
    workdir, settings, data=experiment.data_id, log=progress.log
  )
  with contextlib.closing(run):
    keys, train_data = random_streams(settings['seed']), experiment.train
    state, done = first_state(experiment, run, keys['states'], writes=False)
    lane = Lane(experiment, run, keys, None, state, done, train_data)
    every = cadence(settings, experiment.rounds)
    for stage, first, last in stage_bounds(experiment.stages):
      lane = enter_stage(lane, stage, first, last)
      if not first <= lane.done < last:
        continue
      stop = min(last, (lane.done // every.save + 1) * every.save)
      rounds = f'rounds {lane.done + 1} to {stop}'
      progress.log(f'Playing {rounds} once more, client by client.')
      make_advance([lane], stage, first)([lane], stop)
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


def cadence(settings: dict[str, Any], rounds: int) -> Cadence:
  """Return the cadence of a config; 0 means a choice that suits the run."""
  evaluate = settings['eval_every'] or max(1, rounds // 16)
  # On a CPU a round takes seconds, and a dispatch costs nothing beside it.
  log = 1 if jax.default_backend() == 'cpu' else evaluate
  return Cadence(
    settings['log_every'] or log,
    evaluate,
    settings['checkpoint_every'] or evaluate,
  )


def begin_lanes(seeds: Sequence[tuple[Experiment, Run]]) -> list[Lane]:
  """Return a lane for each seed, where its run stopped."""
  keys = [random_streams(one.settings['seed']) for one, _ in seeds]
  judges = make_judges(
    [experiment for experiment, _ in seeds], [own['evaluation'] for own in keys]
  )
  lanes = []
  for (experiment, run), *own in zip(seeds, keys, judges, strict=True):
    state, done = first_state(experiment, run, own[0]['states'])
    lanes.append(Lane(experiment, run, *own, state, done, experiment.train))
  return lanes


def run_rounds(lanes: Sequence[Lane]) -> list[Lane]:
  """Return the lanes after their last round.

  Those at the lowest round move, all at once, until they are where another
  one waits.
  """
  experiment, start = lanes[0].experiment, min(lane.done for lane in lanes)
  tell_start(lanes)
  with (
    preemption.asked() as asked_fn,
    progress.progress('training', experiment.rounds, start=start) as bar,
  ):
    for stage, first, last in stage_bounds(experiment.stages):
      lanes = [enter_stage(lane, stage, first, last) for lane in lanes]
      if any(lane.done < last for lane in lanes):
        if stage.note:
          progress.log(stage.note)
        for moved in run_stage(lanes, stage, first, last, bar):
          lanes = moved
          if number := multihost.any_of(asked_fn()):
            save_and_stop(lanes, number)
  return lanes


def save_and_stop(lanes: Sequence[Lane], number: int) -> NoReturn:
  """Save every lane where it is, say so, and end as the signal wants it."""
  for lane in lanes:
    if lane.done and not lane.run.has_checkpoint(lane.done):
      lane.run.save_checkpoint(lane.done, lane.state)
  done = sorted({lane.done for lane in lanes})
  rounds = ' and '.join(map(str, done))
  progress.log(f'Saved after round {rounds}; the same command continues.')
  raise preemption.Stopped(number, told=True)


def tell_start(lanes: Sequence[Lane]) -> None:
  """Say on how many devices runs go, and where they are continued."""
  done, rounds = min(lane.done for lane in lanes), lanes[0].experiment.rounds
  if devices := describe(mesh_of(lanes[0].experiment.settings)):
    progress.log(devices)
  ahead = sum(lane.done > done for lane in lanes)
  if 0 < done < rounds or ahead:
    more = f'; {ahead} of {len(lanes)} seeds are ahead and wait' * (ahead > 0)
    progress.log(f'Continuing after round {done} of {rounds}{more}.')


def enter_stage(lane: Lane, stage: Stage, first: int, last: int) -> Lane:
  """Return the lane as the stage begins, or goes on; others as they are."""
  if lane.done == first and stage is not lane.experiment.stages[0]:
    lane = lane._replace(
      state=initialize_stage(lane.experiment, stage, lane.state)
    )
  if not first <= lane.done < last:
    return lane
  data = stage.prepare_data(lane.state.server, lane.experiment.train)
  return lane._replace(data=data)


def run_stage(
  lanes: Sequence[Lane], stage: Stage, first: int, last: int, bar: progress.Bar
) -> Iterator[list[Lane]]:
  """Yield the lanes after every stop up to the last round of a stage."""
  experiment = lanes[0].experiment
  every = cadence(experiment.settings, experiment.rounds)
  advance_fn = make_advance(
    [lane for lane in lanes if lane.done < last], stage, first
  )
  while (done := min(lane.done for lane in lanes)) < last:
    stop = every.next_stop(done, last)
    moving = [lane for lane in lanes if lane.done == done]
    advanced = advance_fn(moving, stop)
    bar.update(
      stop,
      **{
        name: float(np.mean([numbers[name] for _, numbers in advanced]))
        for name in ('loss', 'images_per_second')
      },
    )
    moved = (
      record(lane._replace(state=state, done=stop), numbers, stage, last, every)
      for lane, (state, numbers) in zip(moving, advanced, strict=True)
    )
    lanes = [next(moved) if lane.done == done else lane for lane in lanes]
    yield lanes


def record(
  lane: Lane, numbers: Numbers, stage: Stage, last: int, every: Cadence
) -> Lane:
  """Return the lane, judged, logged and saved where that is due."""
  done, rounds = lane.done, lane.experiment.rounds
  if done % every.evaluate == 0 or done == rounds:
    lane, more = judged(lane, stage)
    numbers = {**numbers, **more}
  lane.run.log(round=done, **numbers)
  if done % every.save == 0 or done == last:
    lane.run.save_checkpoint(done, lane.state)
  return lane


def judged(lane: Lane, stage: Stage) -> tuple[Lane, Numbers]:
  """Return the lane after an evaluation, and its numbers.

  A stage is judged by those of `eval_views` that it has; the last has all.
  """
  began = time.perf_counter()
  experiment, state = lane.experiment, lane.state
  views = experiment.settings['eval_views']
  if stage is not experiment.stages[-1]:
    names = view_names(
      stage.algorithm, state.server, state.clients, experiment.train
    )
    views = [view for view in views if view in names]
  scores = lane.judges.clients(stage, state, views)
  test_best = fold_best(state.test_best, scores, lane.done)
  numbers = accuracies(scores, experiment.train.count)
  whole = lane.judges.whole(stage, state.server)
  numbers |= {
    f'global/{name}': number
    for name, number in whole.items()
    if name != 'count'
  }
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, test_best=test_best)
  return lane._replace(state=state), numbers


def finish(lane: Lane) -> None:
  """Judge the last models, and write all that a finished run has."""
  began = time.perf_counter()
  experiment, state = lane.experiment, lane.state
  models = Models(experiment, lane.run)
  last, views = experiment.stages[-1], experiment.settings['views']
  scores = lane.judges.clients(last, state, views, models.keep)
  whole = lane.judges.whole(last, state.server)
  if multihost.is_first():
    with atomic_files.writing(lane.run.path):
      models.save()
    seconds = float(state.seconds) + time.perf_counter() - began
    write_result(experiment, lane.run, scores, whole, state, seconds)
  lane.run.close()


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
    np.arange(settings['num_clients']),
    train_count=experiment.train.count,
    train_classes=label_counts_of_clients(experiment.train, num_classes),
    test_classes=label_counts_of_clients(experiment.judging[1], num_classes),
  )
  run.write_result(
    algorithm=settings['algorithm'],
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=seconds,
    views={
      view: summarise(score, experiment.train.count)
      for view, score in scores.items()
    },
    test_best=summarise_best(
      state.test_best, experiment.judging[1].count, experiment.train.count
    ),
    **more,
  )
