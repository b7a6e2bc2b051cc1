"""What validation chooses: a setting, and the view in which it is shown.

  argmax over settings and views of  mean over seeds of  mean over clients of a

where a is the accuracy on a client's validation examples, after the last round
or, with select=validation, of the round and view that the run chose by the same
rule (`evaluation/choices.py`). Of equal ones the first setting, then its first
view. A setting with which a seed diverged is none. No test reaches the choice.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.rules import is_number
from fedjax_pfl.evaluation.choices import (
  FINETUNED,
  INITIAL,
  best_candidate,
  mean_of_clients,
)
from fedjax_pfl.results.runs.entry import Fields, Tuned
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.results.statistics.differences import (
  BySeed,
  Verdict,
  behind_best,
)

EPOCHS = 'finetune.epochs'
Runs = Sequence[Run]  # of one setting, one a seed; [] if a seed diverged


class Tried(NamedTuple):
  """A setting in one view, and its accuracies on validation examples."""

  view: str  # '': what each run has chosen
  accuracy: BySeed

  @property
  def means(self) -> list[float]:
    """Return the mean over clients of each seed, in percent."""
    return [*map(mean_of_clients, self.accuracy.values())]

  @property
  def mean(self) -> float:
    return float(np.mean(self.means))


class Choice(NamedTuple):
  """The best of some settings."""

  best: int  # its place
  second: int | None  # of those with finite numbers
  tried: tuple[Tried | None, ...]  # each in its best view; None: it diverged
  lead: Verdict | None  # the best less the second; None of one seed


def views_tried(runs: Runs) -> list[Tried]:
  """Return a setting in every view that may be chosen."""
  by_seed = {run.seed: run.on_validation() for run in runs}
  views = next(iter(by_seed.values()), {})
  return [
    Tried(view, {seed: own[view] for seed, own in by_seed.items()})
    for view in views
    if all(view in own for own in by_seed.values())
  ]


def best_view(runs: Runs) -> Tried | None:
  """Return a setting in its best view; None without a finite number."""
  tried = views_tried(runs)
  at = best_candidate([one.mean for one in tried])
  return None if at is None else tried[at]


def best_setting(groups: Sequence[Runs]) -> Choice | None:
  """Return the best of these settings; None if all diverged."""
  tried = tuple(map(best_view, groups))
  means = [one.mean if one else math.nan for one in tried]
  best = best_candidate(means)
  if best is None:
    return None
  others = [math.nan if at == best else mean for at, mean in enumerate(means)]
  second = best_candidate(others)
  known = {str(at): one.accuracy for at, one in enumerate(tried) if one}
  same_clients = groups[best][0].has_same_clients
  verdicts = behind_best(known, str(best), same_clients)
  return Choice(best, second, tried, verdicts.get(str(second)))


def choose(fields: Sequence[Fields], groups: Sequence[Runs]) -> Tuned | None:
  """Return the best of the candidates of a method; None if all diverged."""
  choice = best_setting(groups)
  if choice is None:
    return None
  chosen, tried = fields[choice.best], choice.tried[choice.best]
  ends = [name for name in chosen if _is_end(name, chosen, fields)]
  views = [one.view for one in views_tried(groups[choice.best])]
  ends += [EPOCHS] * _is_end_of_epochs(tried.view, views)
  return Tuned(chosen, tried.view, tried.mean, tuple(ends))


def _is_end(name: str, chosen: Fields, fields: Sequence[Fields]) -> bool:
  values: set[Any] = {own[name] for own in fields}
  are_numbers = len(values) > 1 and all(map(is_number, values))
  return are_numbers and chosen[name] in (min(values), max(values))


def _is_end_of_epochs(view: str, views: Sequence[str]) -> bool:
  """Return whether it has most epochs, or least: no number is below 0."""
  ends = {views[0], views[-1]} - {INITIAL}
  return views[-1] == FINETUNED and len(views) > 1 and view in ends
