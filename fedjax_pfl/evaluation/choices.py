"""Choices among the scores of runs: settings, rounds and views; numpy.

On validation examples, one rule for settings, rounds and views: the highest
mean over seeds of the mean over clients, of equal ones the first.

Test selection is a choice by TEST accuracy: some published tables have that of
each client's best round, or of the best member of a family of views. It is
optimistic, for the model is evaluated on the examples by which it is chosen.
Results have it apart, under keys that begin with `test_best`.

The views mix_0.0, mix_0.1, .., mix_1.0 are the family 'mix'. A view without a
number, such as 'finetuned' beside 'finetuned_1', is in no family.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import other_measures, summarise

INITIAL, FINETUNED = 'initial', 'finetuned'
MEMBER = re.compile(r'(?P<family>.+)_(?P<value>\d+(\.\d+)?)')


def main_view(views: Sequence[str]) -> str:
  """Return the view after personalisation, which is a table's main number.

  >>> main_view(['initial', 'finetuned', 'finetuned_1'])
  'finetuned'
  >>> main_view(['mix_0.5', 'personal', 'initial']), main_view(['initial'])
  ('personal', 'initial')
  """
  others = [view for view in views if view != INITIAL] or [INITIAL]
  return FINETUNED if FINETUNED in others else others[-1]


# ---- on validation examples --------------------------------------------------


def best_candidate(means: Sequence[float]) -> int | None:
  """Return the place of the highest mean, of equal ones the first.

  NaN is no candidate; None without any.

  >>> best_candidate([math.nan, 70.0, 80.0, 80.0]), best_candidate([math.nan])
  (2, None)
  """
  known = [at for at, mean in enumerate(means) if math.isfinite(mean)]
  return max(known, key=lambda at: means[at], default=None)


def mean_of_clients(accuracy: np.ndarray) -> float:
  """Return the mean over clients with such examples; NaN of none."""
  used = accuracy[~np.isnan(accuracy)]
  return float(used.mean()) if used.size else math.nan


# ---- among rounds ------------------------------------------------------------


def best_rounds(
  correct_of: Mapping[int, np.ndarray],
  count: np.ndarray,
  train_count: Any,
  sign: int = 1,
) -> dict[str, dict[str, Any]]:
  """Return the best rounds of one view on the tests, for result.json.

    each       the best round of every client
    together   the round with the best pooled accuracy of those who train, for
               all, and its number; of equal ones the first

  `correct_of` are {round: right answers of each client [K]}, in order. With
  sign -1, as of errors, the best is the lowest.
  """
  numbers, correct = list(correct_of), np.stack(list(correct_of.values()))
  trains = np.asarray(train_count) > 0
  merit = sign * correct  # [T, K]; NaN of who has no number in any round
  best = int(np.argmax(np.nansum(np.where(trains, merit, 0), axis=1)))
  each, together = (
    summarise(Scores(hits, np.asarray(count)), train_count, sign)
    for hits in (sign * merit.max(0), correct[best])
  )
  return {'each': each, 'together': {'round': numbers[best], **together}}


# ---- among views -------------------------------------------------------------


def families(views: Iterable[str]) -> dict[str, list[str]]:
  """Return the views of every family of two or more, sorted by number.

  >>> families(['initial', 'mix_1.0', 'mix_0.5', 'finetuned_1'])
  {'mix': ['mix_0.5', 'mix_1.0']}
  """
  members_of: dict[str, dict[float, str]] = {}
  for view in views:
    if member := MEMBER.fullmatch(view):
      members = members_of.setdefault(member['family'], {})
      members[float(member['value'])] = view
  return {
    family: [members[value] for value in sorted(members)]
    for family, members in members_of.items()
    if len(members) > 1
  }


def grid(scores: Mapping[str, Scores], views: Iterable[str]) -> Scores:
  """Return the scores of a family's views as tables [K, G]."""
  members = [scores[view] for view in views]
  tables = (
    None
    if any(column is None or isinstance(column, dict) for column in columns)
    else np.stack(columns, axis=1)  # [K, G]
    for columns in zip(*members, strict=True)
  )
  return Scores(*tables)


def released_choice(
  tables: Mapping[str, np.ndarray], sign: int = 1
) -> dict[str, np.ndarray]:
  """Return every measure [K] as SuPerFed's final public code has it.

    max over g in {g_1, .., g_K} of table[k, g],  g_i the best of client i

  `tables` [K, G] has 'accuracy', by which the g_i are chosen, and others. For
  accuracy the maximum is the client's best; for losses and calibration errors
  it is the worst, for top5 the best, over the choices of ALL clients. Of equal
  columns the first is chosen.
  """
  chosen = np.unique(np.argmax(sign * tables['accuracy'], axis=1))
  return {name: table[:, chosen].max(1) for name, table in tables.items()}


@np.errstate(invalid='ignore')  # infinity has no deviation
def best_views(
  scores: Mapping[str, Scores], train_count: Any, sign: int = 1
) -> dict[str, dict[str, Any]]:
  """Return the best view of every family, for result.json.

    together   the view with the best mean over clients, shared by all: its
               mean, and its deviation with ddof 0 (std) and 1 (std_sample);
               of equal ones the first
    each       the best view of each client
    released   `released_choice`: means over clients

  Over the clients that have training and test examples.
  """
  best = {}
  for family, views in families(scores).items():
    table = grid(scores, views)
    is_used = (table.count[:, 0] > 0) & (np.asarray(train_count) > 0)
    is_used &= ~np.isnan(table.correct).any(1)
    used = jax.tree.map(
      lambda rows, is_used=is_used: rows[is_used], table
    )  # [K, G]
    best[family] = _best_view(views, used, sign) if is_used.any() else {}
  return best


def _best_view(views: list[str], table: Scores, sign: int) -> dict[str, Any]:
  accuracy = table.correct / table.count
  column = np.argmax(np.mean(sign * accuracy, axis=0))
  shared = 100 * accuracy[:, column]
  each = 100 * sign * (sign * accuracy).max(1)
  tables = {'accuracy': 100 * accuracy, **other_measures(table)}
  released = released_choice(tables, sign)
  return {
    'together': {
      'view': views[column],
      'mean': float(shared.mean()),
      'std': float(shared.std()),
      'std_sample': float(shared.std(ddof=1)) if shared.size > 1 else None,
    },
    'each': {'mean': float(each.mean()), 'std': float(each.std())},
    'released': {name: float(rows.mean()) for name, rows in released.items()},
  }
