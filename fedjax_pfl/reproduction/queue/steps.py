"""Steps of a queue, an entry with one seed each, and how far each one is."""

from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.compare import data_or_recorded
from fedjax_pfl.reproduction.execute import diverged_of, is_missing, run_path
from fedjax_pfl.reproduction.plan import (
  Evaluation,
  Training,
  distinct_trainings,
  plan,
)
from fedjax_pfl.reproduction.queue.entries import Entry
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import checkpoint
from fedjax_pfl.runs.run_dir import is_finished
from fedjax_pfl.training.build_data import DataOf
from fedjax_pfl.training.warm_start import MODEL

DONE, DIVERGED, BLOCKED = 'done', 'diverged', 'blocked'
STARTED, EVALUATE, WAITING = 'started', 'evaluate', 'waiting'
OPEN = STARTED, EVALUATE, WAITING  # what the queue works on


class Step(NamedTuple):
  """An entry with one of its seeds."""

  entry: Entry
  seed: int
  evaluations: list[Evaluation]
  obstacle: BadInput | None = None  # why it cannot be run here: no images


class State(NamedTuple):
  """How far a step is."""

  kind: str  # one of the words above
  minutes: float = 0.0  # left by the estimate; of a step that is done: taken
  rounds: tuple[int, int] = (0, 0)  # of a training that was stopped: n of m
  obstacle: BadInput | None = None


def make_steps(
  entries: Sequence[Entry], results: Results, data_of: DataOf
) -> list[Step]:
  """Return all steps: the first seed of every entry, then the next seeds."""
  recorded = data_or_recorded(lambda settings: '', results)
  places = max(len(entry.seeds) for entry in entries)
  steps = []
  for place in range(places):
    for entry in entries:
      for seed in entry.seeds[place : place + 1]:
        obstacle = None
        try:
          evaluations = plan(entry.cells, (seed,), data_of)
        except BadInput as error:
          obstacle, evaluations = error, plan(entry.cells, (seed,), recorded)
        steps.append(Step(entry, seed, evaluations, obstacle))
  return steps


def state_of(step: Step, results: Results) -> State:
  """Return how far a step is."""
  missing = [one for one in step.evaluations if is_missing(one, results)]
  if not missing:
    return State(DONE, _minutes_taken(step, results))
  missing = [one for one in missing if not diverged_of(one.training, results)]
  if not missing:
    return State(DIVERGED)
  obstacle = step.obstacle or _obstacle(missing, results)
  if obstacle is not None:
    return State(BLOCKED, step.entry.minutes, obstacle=obstacle)
  todo = [
    one
    for one in distinct_trainings(missing)
    if not is_finished(run_path(one, results))
  ]
  if not todo:
    return State(EVALUATE)
  rounds = _rounds_of(todo, results)
  left = step.entry.minutes * (1 - rounds[0] / max(rounds[1], 1))
  return State(STARTED if rounds[0] else WAITING, left, rounds)


def _rounds_of(
  trainings: Sequence[Training], results: Results
) -> tuple[int, int]:
  """Return the rounds that are saved, and all, of these trainings."""
  saved = 0
  for one in trainings:
    steps = checkpoint.steps(run_path(one, results) / 'checkpoints')
    saved += max(steps, default=0)
  return saved, sum(one.settings.num_rounds for one in trainings)


def _minutes_taken(step: Step, results: Results) -> float:
  wanted = {one.training.key for one in step.evaluations}
  taken = {
    one.run.key: one.run.result['seconds']
    for one in results.evaluations()
    if one.run.key in wanted
  }
  return sum(taken.values()) / 60


def _obstacle(
  missing: Sequence[Evaluation], results: Results
) -> BadInput | None:
  """Return why finished runs cannot be used: a clone lacks their models."""
  for evaluation in missing:
    *before, last = evaluation.training.chain
    for training in before:
      path = run_path(training, results)
      if is_finished(path) and not (path / MODEL).is_file():
        return _no_file(path, MODEL, 'start another run')
    path = run_path(last, results)
    if is_finished(path) and not checkpoint.steps(path / 'checkpoints'):
      return _no_file(path, 'checkpoints', 'evaluate it once more')
  return None


def _no_file(path: object, name: str, purpose: str) -> BadInput:
  return bad_input(
    'run',
    got=f'{path} without {name}',
    expected=f'the whole directory of that run, to {purpose}',
    choices=[
      'copy it from the machine of the run',
      'remove the directory: the run is trained again',
    ],
    cause='a clone of the repository, which has the numbers of a run only',
  )
