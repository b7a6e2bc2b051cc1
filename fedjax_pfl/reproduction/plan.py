"""From cells and seeds to the distinct trainings and evaluations they need."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.reproduction.cells import Cell, Reading
from fedjax_pfl.settings import Settings, parse_config, replace
from fedjax_pfl.training import keys
from fedjax_pfl.training.build_data import DataOf

Config = Mapping[str, Any]
# Stands for the path of that run, which is known when it is trained.
INIT_FROM = 'a run of this plan'


class Training(NamedTuple):
  """One run, of one seed."""

  settings: Settings  # with INIT_FROM where it starts from another run
  key: str  # of the settings, and of those of the run at init_from
  init_from: 'Training | None' = None  # the run whose model it starts from

  @property
  def name(self) -> str:
    """Return a readable name for its directory."""
    # emnist/byclass is one folder
    dataset = self.settings.data.dataset.replace('/', '_')
    return (
      f'{self.settings.algorithm}_{dataset}_seed{self.settings.seed}_{self.key}'
    )

  @property
  def chain(self) -> list['Training']:
    """Return this training, preceded by those that it starts from."""
    return [*(self.init_from.chain if self.init_from else []), self]


class Evaluation(NamedTuple):
  """One way to evaluate the last models of a training."""

  training: Training
  settings: Settings  # of the training, with fields of evaluation replaced
  key: str
  readings: tuple[Reading, ...]


def training_of(
  config: Config, init_from: Config | None, seed: int, data_of: DataOf
) -> Training:
  """Return the training of a config with this seed, and what it starts from."""
  first = training_of(init_from, None, seed, data_of) if init_from else None
  settings = settings_of(config, init_from, seed)
  key = keys.training_key(
    settings, data_of(settings), first.key if first else ''
  )
  return Training(settings, key, first)


def settings_of(
  config: Config, init_from: Config | None, seed: int
) -> Settings:
  """Return the settings of a config with this seed."""
  changes = {'init_from': INIT_FROM} if init_from else {}
  return parse_config({**config, 'seed': seed, **changes})


def evaluation_of(cell: Cell, seed: int, data_of: DataOf) -> Evaluation:
  """Return the evaluation that gives the number of a cell for this seed."""
  training = training_of(cell.settings, cell.init_from, seed, data_of)
  settings = replace(training.settings, cell.evaluation)
  key = keys.evaluation_key(settings)
  return Evaluation(training, settings, key, (cell.reading,))


def plan(
  cells: Sequence[Cell], seeds: Sequence[int], data_of: DataOf
) -> list[Evaluation]:
  """Return the distinct evaluations of cells and seeds, in their order."""
  merged: dict[tuple[str, str], Evaluation] = {}
  for cell in cells:
    for seed in seeds:
      new = evaluation_of(cell, seed, data_of)
      known = merged.get((new.training.key, new.key), new)
      readings = dict.fromkeys((*known.readings, *new.readings))
      merged[new.training.key, new.key] = known._replace(
        readings=tuple(readings)
      )
  return list(merged.values())


def distinct_trainings(evaluations: Sequence[Evaluation]) -> list[Training]:
  """Return the trainings, each once, after those that they start from."""
  ordered: dict[str, Training] = {}
  for evaluation in evaluations:
    ordered |= {one.key: one for one in evaluation.training.chain}
  return list(ordered.values())


def group_seeds(trainings: Sequence[Training]) -> list[list[Training]]:
  """Return trainings that differ only in the seed in one group."""
  groups: dict[str, list[Training]] = {}
  for training in trainings:
    shared = repr([without_seed(one.settings) for one in training.chain])
    groups.setdefault(shared, []).append(training)
  return list(groups.values())


def without_seed(settings: Settings) -> Settings:
  """Return the settings that the seeds of one config share."""
  return dataclasses.replace(settings, seed=0, init_from='')
