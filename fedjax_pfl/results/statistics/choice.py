"""What validation chooses: a setting, and the view in which it is shown.

  argmax over settings and views of  mean over seeds of  mean over clients of a

where a is the accuracy on a client's validation examples, or another measure
(`tune_by`; of one where lower is better the argmin), after the last round
or, with select=validation, of the round and view that the run chose by the same
rule (`evaluation/choices.py`). Of equal ones the first setting, then its first
view. A setting with which a seed diverged is none. No test reaches the choice.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.rules import is_number
from fedjax_pfl.evaluation.choices import (
  FINETUNED,
  INITIAL,
  best_candidate,
  mean_of_clients,
)
from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.runs.entry import Choice, Fields
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.results.statistics.differences import (
  ABOVE,
  BELOW,
  BySeed,
  Verdict,
  behind_best,
)

EPOCHS, RATE = 'finetune.epochs', 'finetune.learning_rate'
Runs = Sequence[Run]  # of one setting, one a seed; [] if a seed diverged


class Tried(NamedTuple):
  """A setting in one view, and what it has on validation examples."""

  view: str  # '': what each run has chosen
  values: BySeed
  measure: Measure = ACCURACY
  has_same_clients: bool = False  # with every seed

  @property
  def means(self) -> list[float]:
    """Return the mean over clients of each seed."""
    return [*map(mean_of_clients, self.values.values())]

  @property
  def mean(self) -> float:
    return float(np.mean(self.means))

  @property
  def merit(self) -> float:
    """Return the mean, or what is higher where it is lower."""
    return self.measure.sign * self.mean


Trials = Sequence[Tried | None]  # each in its best view; None: it diverged


def best_of(tried: Trials) -> int | None:
  """Return the place of the best; None without a finite number."""
  return best_candidate(merits(tried))


def merits(tried: Trials) -> list[float]:
  return [math.nan if trial is None else trial.merit for trial in tried]


def views_tried(runs: Runs, measure: Measure) -> list[Tried]:
  """Return a setting in every view that may be chosen."""
  by_seed = {run.seed: run.on_validation(measure.name) for run in runs}
  tried = []
  for view in next(iter(by_seed.values()), {}):
    if all(view in values for values in by_seed.values()):
      values = {seed: values[view] for seed, values in by_seed.items()}
      tried.append(Tried(view, values, measure, runs[0].has_same_clients))
  return tried


def settings_tried(groups: Sequence[Runs], measure: Measure) -> Trials:
  """Return each setting in its best view."""
  every = [views_tried(runs, measure) for runs in groups]
  places = [(views, best_of(views)) for views in every]
  return [None if at is None else views[at] for views, at in places]


def lead_of(tried: Trials) -> tuple[int | None, Verdict | None]:
  """Return the place of the second, and the best less it; None of one seed."""
  best = best_of(tried)
  second = best_of([*tried[:best], None, *tried[best + 1 :]])
  known = {str(at): trial.values for at, trial in enumerate(tried) if trial}
  shared, measure = tried[best].has_same_clients, tried[best].measure
  verdicts = behind_best(known, str(best), shared, measure)
  return second, verdicts.get(str(second))


def verdict(settings: Sequence[Fields], tried: Trials) -> str:
  """Return what is chosen, by how much, and whether seeds tell them apart."""
  best, (second, lead) = best_of(tried), lead_of(tried)
  chosen, measure = tried[best], tried[best].measure
  view = f' in the view {chosen.view}' if chosen.view else ''
  by = f' by {measure.name}' * (measure != ACCURACY)
  number = f'{measure.text(chosen.mean)} {measure.unit}'.rstrip()
  line = f'Best on validation{by}: {in_words(settings[best])}{view}, {number}'
  if second is None:
    return f'{line}; the only setting with finite numbers.'
  ahead = chosen.mean - tried[second].mean
  side = ABOVE if measure.sign > 0 else BELOW
  gap = f'{measure.text(abs(ahead))} {measure.unit_of_gap}'.rstrip()
  line += f', {gap} {side} {in_words(settings[second])}'
  if lead is None:
    return f'{line} (of one seed, which says nothing of others).'
  ends = sorted(measure.sign * end for end in lead.gap[1:3])
  interval = ' to '.join(map(measure.text, ends))
  word = 'distinguishable' if lead.is_ahead else lead.word
  return (
    f'{line} (95 % interval {interval}, paired over seeds; by '
    f'Holm over all pairs of settings: {word}).'
  )


def in_words(fields: Fields) -> str:
  """Return 'learning_rate=0.01, hp.mu=0.1'."""
  return ', '.join(f'{name}={value}' for name, value in fields.items())


def choose(
  fields: Sequence[Fields],
  groups: Sequence[Runs],
  measure: Measure = ACCURACY,
) -> Choice | None:
  """Return the best of the candidates of a method; None if all diverged."""
  tried = settings_tried(groups, measure)
  best = best_of(tried)
  if best is None:
    return None
  chosen, ends = tried[best], []
  for name in fields[best]:
    values = [setting[name] for setting in fields]
    if all(map(is_number, values)) and binds(values, merits(tried), best):
      ends.append(name)
  ends += _ends_of_views(views_tried(groups[best], measure), chosen.view)
  return Choice(fields[best], chosen.view, chosen.mean, tuple(ends))


def _ends_of_views(views: Sequence[Tried], chosen: str) -> list[str]:
  """Return where other epochs, or another rate, may fine-tune better."""
  merit_of = {x.view: x.merit for x in views if x.view != INITIAL}
  if FINETUNED not in merit_of or chosen not in merit_of:
    return []
  epochs, *rate = chosen.partition('_x')
  lengths = [view for view in merit_of if [*view.partition('_x')[1:]] == rate]
  fits = [view for view in merit_of if view.partition('_x')[0] == epochs]
  factors = [float(view.partition('_x')[2] or 1) for view in fits]
  ends = []
  for name, values, alike in (
    (EPOCHS, range(len(lengths)), lengths),
    (RATE, factors, fits),
  ):
    means = [merit_of[view] for view in alike]
    ends += [name] * binds(values, means, alike.index(chosen))
  return ends


def binds(values: Sequence[float], means: Sequence[float], best: int) -> bool:
  """Return whether an end of what was tried may have kept a better one away.

  Of three values or more; not if another one is as good.

  >>> binds([1, 2, 3], [80.0, 81.0, 82.0], 2), binds([1, 2], [80.0, 81.0], 1)
  (True, False)
  >>> binds([1, 2, 3], [80.0, 82.0, 82.0], 2)
  False
  """
  tried = {*values}
  if len(tried) < 3 or values[best] not in (min(tried), max(tried)):
    return False
  pairs = zip(values, means, strict=True)
  return not any(x != values[best] and y >= means[best] for x, y in pairs)
