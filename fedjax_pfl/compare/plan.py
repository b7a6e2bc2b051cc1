"""A plan: trainings, each with its labels, checked before the first is begun.

Grids and random ranges make plans, forms (form.py), and the cells of published
tables (experiments/reproduction/plan.py).
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fedjax_pfl.compare.combinations import Combination
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.settings import Settings, flat_config, parse_config, replace
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.settings.validate import key, traced_names
from fedjax_pfl.training.outline import outline, sketch

Value = TypeVar('Value')
# Fields of the data on which shapes depend; all others say who has which.
OF_SHAPES = {
  *('dataset', 'data_dir', 'image_size', 'preprocessing'),
  *('num_clients', 'unseen_clients'),
}


class Planned(NamedTuple):
  """A training, and what it is in its plan: {'learning_rate': '0.1'}."""

  settings: Settings
  labels: Mapping[str, Any]


Plan = Sequence[Planned]


def with_seeds(
  settings: Settings, labels: Mapping[str, Any], seeds: Iterable[int]
) -> list[Planned]:
  return [Planned(replace(settings, seed=seed), labels) for seed in seeds]


def of_combinations(
  combinations: Sequence[Combination],
  configs: Sequence[Mapping[str, Any]],
  seeds: Sequence[int],
) -> list[Planned]:
  """Return the plan of a sweep; `configs` have the fields of `combinations`."""
  every = [*map(parse_config, configs)]
  check_parts([*map(flat_config, every)])
  rows = map(with_seeds, every, combinations, itertools.repeat(seeds))
  return [*itertools.chain(*rows)]


def grouped(plan: Plan, values: Iterable[Value]) -> list[list[Value]]:
  """Return a value of each training, those of equal labels together."""
  pairs = zip(plan, values, strict=True)
  groups = itertools.groupby(pairs, lambda pair: pair[0].labels)
  return [[value for _, value in group] for _, group in groups]


def check(plans: Iterable[Plan], *, tunes: bool) -> None:
  """Refuse what could not be trained, before the first training.

  Every method is built, and every program traced on shapes. Examples, and the
  run to start from, are not read. With `tunes` validation chooses within each
  plan.
  """
  traced = set()
  for plan in plans:
    every = [settings._replace(seed=0) for settings, _ in plan]
    if tunes:
      _check_choice(every)
    for settings in {repr(each): each for each in every}.values():
      program = shapes_key(settings)
      (sketch if program in traced else outline)(settings)
      traced.add(program)


def shapes_key(settings: Settings) -> str:
  """Return the fields on which programs depend, but for examples, as text."""
  of_examples = {*vars(settings.data)} - OF_SHAPES
  return key(settings, but={'seed', *of_examples, *traced_names(settings)})


def _check_choice(every: Sequence[Settings]) -> None:
  """Refuse to choose without validation examples, or among other examples."""
  first, *others = (vars(settings.data) for settings in every)
  if not all(settings.data.validation_fraction for settings in every):
    raise bad_input(
      'validation_fraction',
      got=0,
      expected='a share of the training examples that is kept for choosing',
      choices=['--config.validation_fraction=0.2'],
    )
  names = [
    name
    for name in first
    if name != 'preprocessing'
    and any(other[name] != first[name] for other in others)
  ]
  if names:
    raise bad_input(
      'validation',
      got=f'settings that differ in {", ".join(names)}',
      expected='the same clients and examples in all settings among which it '
      'chooses',
      choices=['the sweep without --tune', 'a sweep for each value'],
    )
