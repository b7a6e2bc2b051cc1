"""A sweep: settings that differ in some fields, each with several seeds.

The best is chosen by `results/statistics/choice.py`, on examples that nobody
trained on.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.results.statistics.choice import Choice, best_setting
from fedjax_pfl.results.statistics.differences import ABOVE
from fedjax_pfl.results.tables.text_table import align
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import Settings, flat_config, parse_config, replace
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.training.outline import outline
from fedjax_pfl.tuning.combinations import Combination
from fedjax_pfl.tuning.train_all import is_diverged, read_group

Groups = Sequence[Sequence[Path]]  # run directories [setting][seed]


def plan_sweep(
  configs: Sequence[Mapping[str, Any]], seeds: Sequence[int], *, tunes: bool
) -> list[list[Settings]]:
  """Return the settings [config][seed]; refuse what could not be trained.

  Every setting is checked, and its method traced on shapes, before the first is
  trained. Examples, and the run to start from, are not read.
  """
  rows = []
  each = [*map(parse_config, configs)]
  check_parts([*map(flat_config, each)])
  for own in each:
    if tunes and not own.data.validation_fraction:
      raise bad_input(
        '--tune',
        got='validation, with validation_fraction=0',
        expected='a share of the training examples that is kept for choosing',
        choices=['--config.validation_fraction=0.1'],
      )
    outline(own)
    rows.append([replace(own, seed=seed) for seed in seeds])
  if tunes:
    _check_same_examples([row[0] for row in rows])
  return rows


def _check_same_examples(settings: Sequence[Settings]) -> None:
  """Refuse to compare by validation what clients of other examples reach."""
  first, *others = (vars(own.data) for own in settings)
  names = [
    name
    for name in first
    if name != 'preprocessing'
    and any(other[name] != first[name] for other in others)
  ]
  if names:
    raise bad_input(
      '--tune',
      got=f'validation, of settings that differ in {", ".join(names)}',
      expected='the same clients and examples in all settings: the lead is '
      'paired over clients',
      choices=['the sweep without --tune', 'a sweep for each value'],
    )


def best_on_validation(groups: Groups) -> Choice:
  """Return the choice among groups of finished runs, the same seeds in each."""
  read = lambda path: run_dir.load_config(path)['config']['seed']
  seeds = [[*map(read, group)] for group in groups]
  if not seeds or not seeds[0] or any(own != seeds[0] for own in seeds):
    raise bad_input(
      'groups',
      got=seeds,
      expected='one or more groups of runs, with the same seeds in each',
    )
  runs = [*map(read_group, groups)]
  for run in itertools.chain(*runs):
    if run.clients.validation is None:
      raise bad_input(
        'validation_fraction',
        got=f'{run.path}, a run without validation examples',
        expected='runs that kept some for choosing',
        choices=['validation_fraction=0.1'],
        cause='the field was forgotten; or an older version ended the run: '
        'without its result.json the same command ends it again',
      )
  choice = best_setting(runs)
  if choice is None:
    raise bad_input(
      'sweep',
      got=f'{len(groups)} settings, in each of which a run diverged',
      expected='a setting whose runs stay finite',
      cause='learning rates that are too high for this model',
    )
  return choice


def runs_of_whole_settings(groups: Groups) -> list[Path]:
  """Return the runs of the settings of which no seed diverged.

  The mean of the seeds that are left would be too high.
  """
  whole = [group for group in groups if not any(map(is_diverged, group))]
  return [path for group in whole for path in group]


def as_table(
  combinations: Sequence[Combination], groups: Groups, choice: Choice | None
) -> str:
  """Return the accuracies in percent, mean ± deviation over seeds, as text.

  With a choice: on validation, and of the best setting alone on the tests.
  Without: on the tests, which are no ground for a choice.
  """
  fields = [*combinations[0]]
  rows = [(*fields, *['validation'] * bool(choice), 'tests')]
  pairs = zip(combinations, groups, strict=True)
  for place, (own, group) in enumerate(pairs):
    cells, view = [own[name] for name in fields], ''
    if choice:
      tried = choice.tried[place]
      view = tried.view if tried else ''
      cells.append(_mean_and_std(tried.means if tried else []))
    is_shown = not choice or place == choice.best
    rows.append((*cells, _on_tests(group, view) if is_shown else ''))
  return align(rows)


def verdict(combinations: Sequence[Combination], choice: Choice) -> str:
  """Return what was chosen, by how much, and whether seeds tell them apart."""
  tried = choice.tried[choice.best]
  best = describe(combinations[choice.best])
  view = f' in the view {tried.view}' if tried.view else ''
  line = f'Best on validation: {best}{view}, {tried.mean:.2f} %'
  if choice.second is None:
    return f'{line}; the only setting with finite numbers.'
  ahead = tried.mean - choice.tried[choice.second].mean
  line += f', {ahead:.2f} points above {describe(combinations[choice.second])}'
  if choice.lead is None:
    return f'{line} (of one seed, which says nothing of others).'
  gap, word = choice.lead.gap, choice.lead.word
  word = 'distinguishable' if word == ABOVE else word
  return (
    f'{line} (95 % interval {gap.low:.2f} to {gap.high:.2f}, paired over '
    f'seeds; by Holm over all pairs of settings: {word}).'
  )


def describe(combination: Combination) -> str:
  """Return 'learning_rate=0.1, hp.mu=0.01'."""
  return ', '.join(f'{name}={value}' for name, value in combination.items())


def _on_tests(group: Sequence[Path], view: str) -> str:
  """Return mean ± deviation over seeds on the tests, in this view.

  Without one in that which is the number of each run.
  """
  runs = read_group(group)
  numbers = [run.result['views'][view or run.compared[1]] for run in runs]
  return _mean_and_std([one['mean'] for one in numbers])


def _mean_and_std(values: Sequence[float]) -> str:
  if not values or math.isnan(np.mean(values)):
    return 'diverged'
  if len(values) == 1:
    return f'{values[0]:.2f}'
  return f'{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}'
