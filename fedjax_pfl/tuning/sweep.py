"""A sweep: settings that differ in some fields, each with several seeds.

The best is chosen on examples that nobody trained on:

  argmax over settings of  mean over seeds of  mean over clients of a_sk

where a_sk is the accuracy of client k's model, of seed s, on its validation
examples. Of equal settings the first is chosen. No test reaches the choice.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.partition import SAME_CLIENTS
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.results.statistics.differences import (
  Difference,
  paired_difference,
)
from fedjax_pfl.results.tables.text_table import align
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import Settings, flat_config, parse_config, replace
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.settings.validate import program_key
from fedjax_pfl.training import build, build_method
from fedjax_pfl.training.views import main_view
from fedjax_pfl.tuning.combinations import Combination
from fedjax_pfl.tuning.train_all import is_diverged

Groups = Sequence[Sequence[Path]]  # run directories [setting][seed]


def plan_sweep(
  configs: Sequence[Mapping[str, Any]], seeds: Sequence[int], *, tunes: bool
) -> list[list[Settings]]:
  """Return the settings [config][seed]; refuse what could not be trained.

  Every setting is checked and its method built, and every program traced on
  shapes, before the first is trained. Examples, and the run to start from, are
  not read.
  """
  rows, traced = [], set()
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
    if (key := program_key(own)) in traced:
      build_method.outline_stages(own)
    else:
      shape = build_method.peek_shape(own.data)
      task, log = build_method.build_task(own, shape), lambda text: None
      build.method_and_budget(own, task, shape, log)
      traced.add(key)
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


class BestSetting(NamedTuple):
  """The best of some groups: each has the runs of one setting, one a seed."""

  best: int  # its place
  second: int | None  # of those with finite numbers
  means: tuple[float, ...]  # in percent; NaN where a run diverged
  lead: Difference  # the best less the second; NaN without a second
  by_seed: tuple[tuple[float, ...], ...]  # [group][seed], whose means are means


def best_on_validation(groups: Groups) -> BestSetting:
  """Return the choice among groups of finished runs, the same seeds in each."""
  read = lambda path: run_dir.load_config(path)['config']
  configs = [[*map(read, group)] for group in groups]
  seeds = [[one['seed'] for one in group] for group in configs]
  if not seeds or not seeds[0] or any(own != seeds[0] for own in seeds):
    raise bad_input(
      'groups',
      got=seeds,
      expected='one or more groups of runs, with the same seeds in each',
    )
  clients = [[_accuracies(path) for path in group] for group in groups]
  by_seed = tuple(tuple(map(_mean, group)) for group in clients)
  means = tuple(float(np.mean(group)) for group in by_seed)
  finite = [place for place, mean in enumerate(means) if math.isfinite(mean)]
  if not finite:
    raise bad_input(
      'sweep',
      got=f'{len(groups)} settings, in each of which a run diverged',
      expected='a setting whose runs stay finite',
      cause='learning rates that are too high for this model',
    )
  best, *rest = sorted(finite, key=lambda place: -means[place])
  if not rest:
    return BestSetting(best, None, means, Difference(math.nan), by_seed)
  pair, own = (clients[best], clients[rest[0]]), configs[best][0]
  # Which clients come later, or share a domain, is drawn.
  is_drawn = own.get('unseen_clients') or own.get('clients_per_domain', 1) > 1
  same = own['partition'] in SAME_CLIENTS and not is_drawn
  lead = paired_difference(*pair, same_clients=same)
  return BestSetting(best, rest[0], means, lead, by_seed)


def _mean(accuracy: np.ndarray) -> float:
  """Return the mean over clients with validation examples; NaN of none."""
  used = accuracy[~np.isnan(accuracy)]
  return float(used.mean()) if used.size else math.nan


def _accuracies(path: Path) -> np.ndarray:
  """Return the accuracy of every client on validation; NaN if it diverged."""
  if is_diverged(path):
    return np.array([math.nan])
  run_dir.load_result(path)  # refuses a run that is not finished
  clients = run_dir.load_clients(path)
  if clients.validation is None:
    raise bad_input(
      'validation_fraction',
      got=f'{path}, a run without validation examples',
      expected='runs that kept some for choosing',
      choices=['validation_fraction=0.1'],
      cause='the field was forgotten; or an older version ended the run: '
      'without its result.json the same command ends it again',
    )
  return accuracies(clients.validation, clients.train_count)


def runs_of_whole_settings(groups: Groups) -> list[Path]:
  """Return the runs of the settings of which no seed diverged.

  The mean of the seeds that are left would be too high.
  """
  whole = [group for group in groups if not any(map(is_diverged, group))]
  return [path for group in whole for path in group]


def as_table(
  combinations: Sequence[Combination],
  groups: Groups,
  choice: BestSetting | None,
) -> str:
  """Return the accuracies in percent, mean ± deviation over seeds, as text.

  With a choice: on validation, and of the best setting alone on the tests.
  Without: on the tests, which are no ground for a choice.
  """
  fields = [*combinations[0]]
  rows = [(*fields, *['validation'] * bool(choice), 'tests')]
  pairs = zip(combinations, groups, strict=True)
  for place, (own, group) in enumerate(pairs):
    cells = [own[name] for name in fields]
    if choice:
      cells.append(_mean_and_std(choice.by_seed[place]))
    is_shown = not choice or place == choice.best
    rows.append((*cells, _on_tests(group) if is_shown else ''))
  return align(rows)


def verdict(combinations: Sequence[Combination], choice: BestSetting) -> str:
  """Return what was chosen, by how much, and whether that may be noise."""
  best = describe(combinations[choice.best])
  line = f'Best on validation: {best}, {choice.means[choice.best]:.2f} %'
  if choice.second is None:
    return f'{line}; the only setting with finite numbers.'
  second = describe(combinations[choice.second])
  mean, *ends = choice.lead[:3]
  # A digit that is not 0: a rounded end would be on the side of either verdict.
  low, high = (f'{x:.2f}' if round(x, 2) else f'{x + 0.0:.1g}' for x in ends)
  words = 'is more than noise' if choice.lead.sign else 'may be noise'
  words = f'paired over seeds and clients: the difference {words}'
  if len(choice.by_seed[0]) == 1:
    words = 'over the clients of one seed; it says nothing of other seeds'
  return (
    f'{line}, {mean:.2f} points above {second} '
    f'(95 % interval {low} to {high}, {words}).'
  )


def describe(combination: Combination) -> str:
  """Return 'learning_rate=0.1, hp.mu=0.01'."""
  return ', '.join(f'{name}={value}' for name, value in combination.items())


def _on_tests(group: Sequence[Path]) -> str:
  """Return mean ± deviation over seeds on the tests.

  Of the view that validation compared, where a run has one; else of the main.
  """
  if any(map(is_diverged, group)):
    return 'diverged'
  means = []
  for path in group:
    result = run_dir.load_result(path)
    views, select = result['views'], result.get('select')
    view = result[select]['view'] if select else main_view(tuple(views))
    means.append(views[view]['mean'])
  return _mean_and_std(means)


def _mean_and_std(values: Sequence[float]) -> str:
  mean = float(np.mean(values))
  if math.isnan(mean):
    return 'diverged'
  if len(values) == 1:
    return f'{mean:.2f}'
  return f'{mean:.2f} ± {np.std(values, ddof=1):.2f}'
