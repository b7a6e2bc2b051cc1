"""Refuse results that contradict each other, with both sources named."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.results.gather import (
  Evaluated,
  Evaluation,
  Training,
  read_scores,
)
from fedjax_pfl.runs.identity import flatten

TOLERANCE = 1e-6
# Numbers of result.json that are not summaries of the clients' scores.
OTHER_NUMBERS = (
  *('global', 'test_best', 'test_best_view', 'validation', 'last'),
  'unseen',
)


def other_data(training: Training, data: str, path: str) -> BadInput:
  """Return the exception for two trainings that differ only in their data."""
  return bad_input(
    'data',
    got=f'{training.data} in {training.provenance}',
    expected=f'{data}, on which {path} trained with the same settings and seed',
    choices=['leave one of the two out', 'another --results for it'],
    cause='other image files, synthetic images in their place, or a partition '
    'that has changed',
  )


def check(old: Evaluation, new: Evaluation) -> None:
  """Refuse two evaluations under one key that are not the same."""
  if old.data.partition('+')[0] != new.data.partition('+')[0]:
    raise bad_input(
      'data',
      got=f'{new.data} in {new.provenance}',
      expected=f'{old.data}, on which {old.provenance} evaluated the same way',
      choices=['leave one of the two out', 'another --results for it'],
      cause='other image files, or a partition that has changed',
    )
  for view in new.folders.keys() & old.folders.keys():
    known, given = read_scores(old, view), read_scores(new, view)
    _check_scores(view, known, given, old, new)
  _check_results(old, new)


def _check_scores(
  view: str,
  known: Evaluated,
  given: Evaluated,
  old: Evaluation,
  new: Evaluation,
) -> None:
  """Refuse two results of one view that are not the same for every client."""
  pairs = {
    'num_clients': (known.ids, given.ids),
    'train_count': (known.train_count, given.train_count),
    **{
      field: (one, getattr(given.scores, field))
      for field, one in known.scores._asdict().items()
      if field != 'own'
    },
    **_shared(known.scores.own or {}, given.scores.own or {}),
  }
  for name, (one, other) in pairs.items():
    if one is None or other is None:  # an older version lacks this score
      continue
    one, other = np.asarray(one, float), np.asarray(other, float)
    if one.shape != other.shape:
      raise _disagree(f'{view} of {len(other)} clients', len(one), old, new)
    far = ~np.isclose(
      one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    )
    if far.any():
      first = int(np.argmax(far))
      raise _disagree(
        f'{name}={other[first]:.7g} for client {given.ids[first]} in the view '
        f'{view} ({far.sum()} of {len(far)} clients differ)',
        f'{one[first]:.7g}',
        old,
        new,
      )


def _shared(
  known: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, tuple]:
  """Return {name: (known, given)} of the user's metrics that both have."""
  return {name: (known[name], given[name]) for name in known if name in given}


def _check_results(old: Evaluation, new: Evaluation) -> None:
  """Refuse other numbers of the global model or of the best rounds."""
  known, given = _numbers(old.result), _numbers(new.result)
  for name in known.keys() & given.keys():
    if not math.isclose(
      known[name], given[name], rel_tol=TOLERANCE, abs_tol=TOLERANCE
    ):
      raise _disagree(
        f'{name}={given[name]:.7g}', f'{known[name]:.7g}', old, new
      )


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
  chosen = {name: result[name] for name in OTHER_NUMBERS if name in result}
  return {
    name: float(value)
    for name, value in flatten(chosen).items()
    if isinstance(value, int | float)
  }


def _disagree(
  what: str, known: object, old: Evaluation, new: Evaluation
) -> BadInput:
  return bad_input(
    'results',
    got=f'{what}, of {new.provenance}',
    expected=f'{known}, as {old.provenance} gave for the same config, data and '
    'seed',
    choices=[
      'leave one of the two out',
      'if both are from this machine, delete one of the run directories',
    ],
    cause='another version of the code or of jax, or another kind of machine: '
    'training amplifies differences in the last digit',
  )
