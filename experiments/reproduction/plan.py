"""From cells and seeds to the distinct trainings and evaluations they need.

On which data they were, or will be, is not part of a plan: a folder of results
knows the keys of its runs (`Results.key_of`), so no images are read for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.reproduction.cells import Cell, Reading
from fedjax_pfl.settings import Settings, parse_config, replace
from fedjax_pfl.training import keys

Config = Mapping[str, Any]
# Stands for the path of that run, which is known when it is trained.
INIT_FROM = 'a run of this plan'


class PlannedRun(NamedTuple):
  """One run, of one seed."""

  settings: Settings  # with INIT_FROM where it starts from another run
  identity: str  # a hash of them, and of those of the run at init_from
  init_from: 'PlannedRun | None' = None  # the run whose model it starts from

  @property
  def chain(self) -> list['PlannedRun']:
    """Return this training, preceded by those that it starts from."""
    return [*(self.init_from.chain if self.init_from else []), self]


class Evaluation(NamedTuple):
  """One way to evaluate the last models of a training."""

  training: PlannedRun
  settings: Settings  # of the training, with fields of evaluation replaced
  key: str
  readings: tuple[Reading, ...]


def training_of(
  config: Config, init_from: Config | None, seed: int
) -> PlannedRun:
  """Return the training of a config with this seed, and what it starts from."""
  first = training_of(init_from, None, seed) if init_from else None
  start = {'init_from': INIT_FROM} if init_from else {}
  settings = parse_config({**config, 'seed': seed, **start})
  begins = keys.model_key(first.identity, first.settings) if first else ''
  identity = keys.training_key(settings, '', begins)
  return PlannedRun(settings, identity, first)


def evaluation_of(cell: Cell, seed: int) -> Evaluation:
  """Return the evaluation that gives the number of a cell for this seed."""
  training = training_of(cell.settings, cell.init_from, seed)
  settings = replace(training.settings, cell.evaluation)
  key = keys.evaluation_key(settings)
  return Evaluation(training, settings, key, (cell.reading,))


def plan(cells: Sequence[Cell], seeds: Sequence[int]) -> list[Evaluation]:
  """Return the distinct evaluations of cells and seeds, in their order."""
  merged: dict[tuple[str, str], Evaluation] = {}
  for cell in cells:
    for seed in seeds:
      new = evaluation_of(cell, seed)
      pair = new.training.identity, new.key
      known = merged.get(pair, new)
      readings = dict.fromkeys((*known.readings, *new.readings))
      merged[pair] = known._replace(readings=tuple(readings))
  return list(merged.values())


def distinct_trainings(evaluations: Sequence[Evaluation]) -> list[PlannedRun]:
  """Return the trainings, each once, after those that they start from."""
  ordered: dict[str, PlannedRun] = {}
  for evaluation in evaluations:
    ordered |= {run.identity: run for run in evaluation.training.chain}
  return list(ordered.values())


def group_seeds(trainings: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
  """Return trainings that differ only in the seed in one group."""
  groups: dict[str, list[PlannedRun]] = {}
  for training in trainings:
    shared = repr([run.settings._replace(seed=0) for run in training.chain])
    groups.setdefault(shared, []).append(training)
  return list(groups.values())
