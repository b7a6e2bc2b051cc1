"""From cells and seeds to what has to be trained and evaluated, once each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.reproduction.planning import keys
from fedjax_pfl.reproduction.cells import Cell, Reading, replaced


class Training(NamedTuple):
  """One run, of one seed."""

  settings: Mapping[str, Any]  # a whole config; `start` is filled in later
  key: str  # of the settings, and of those of the run it begins with
  start: 'Training | None' = None  # the run whose model it begins with

  @property
  def name(self) -> str:
    """Return a name for its directory, which a person can find again."""
    one = self.settings
    dataset = one['dataset'].replace('/', '_')  # emnist/byclass is one folder
    return f'{one["algorithm"]}_{dataset}_seed{one["seed"]}_{self.key}'

  @property
  def chain(self) -> list['Training']:
    """Return this training after what it begins with."""
    return [*(self.start.chain if self.start else []), self]


class Evaluation(NamedTuple):
  """One way to evaluate the last models of a training."""

  training: Training
  settings: Mapping[str, Any]  # of the training, fields of evaluation replaced
  key: str
  readings: tuple[Reading, ...]


class Identity(NamedTuple):
  """What a key needs besides a config."""

  defaults: Mapping[str, Any]  # of all configs
  data_of: Callable[[Mapping[str, Any]], str]  # settings -> fingerprint


def training_of(
  settings: Mapping[str, Any],
  start: Mapping[str, Any] | None,
  seed: int,
  identity: Identity,
) -> Training:
  """Return the training of a config with this seed, and what it begins with."""
  first = training_of(start, None, seed, identity) if start else None
  settings = {**settings, 'seed': seed}
  key = keys.training_key(
    settings,
    identity.data_of(settings),
    defaults=identity.defaults,
    start_key=first.key if first else '',
  )
  return Training(settings, key, first)


def evaluation_of(cell: Cell, seed: int, identity: Identity) -> Evaluation:
  """Return how the number of a cell comes about for this seed."""
  training = training_of(cell.settings, cell.start, seed, identity)
  settings = replaced(training.settings, cell.evaluation)
  key = keys.evaluation_key(settings, defaults=identity.defaults)
  return Evaluation(training, settings, key, (cell.reading,))


def plan(
  cells: Sequence[Cell], seeds: Sequence[int], identity: Identity
) -> list[Evaluation]:
  """Return what cells and seeds need, each evaluation once, in their order."""
  merged: dict[tuple[str, str], Evaluation] = {}
  for cell in cells:
    for seed in seeds:
      one = evaluation_of(cell, seed, identity)
      known = merged.get((one.training.key, one.key), one)
      readings = dict.fromkeys((*known.readings, *one.readings))
      merged[one.training.key, one.key] = known._replace(
        readings=tuple(readings)
      )
  return list(merged.values())


def trainings(evaluations: Sequence[Evaluation]) -> list[Training]:
  """Return the trainings, each once, those that others begin with first."""
  ordered: dict[str, Training] = {}
  for evaluation in evaluations:
    ordered |= {one.key: one for one in evaluation.training.chain}
  return list(ordered.values())


def groups(ordered: Sequence[Training]) -> list[list[Training]]:
  """Return trainings that differ in nothing but the seed together."""
  together: dict[str, list[Training]] = {}
  for one in ordered:
    settings = [{**link.settings, 'seed': 0} for link in one.chain]
    alike = repr([sorted(fields.items()) for fields in settings])
    together.setdefault(alike, []).append(one)
  return list(together.values())
