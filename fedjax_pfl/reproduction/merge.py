"""Results of another machine: refused if they disagree, else copied.

A run is copied without its checkpoints, under a name that begins with a dot
until the copy is finished. What is here already is not copied.
"""

import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Scores
from fedjax_pfl.runs import lock
from fedjax_pfl.runs.identity import flatten

if TYPE_CHECKING:
  from fedjax_pfl.reproduction.results import Results, StoredEvaluation

TOLERANCE = 1e-6
# Numbers of result.json that are not summaries of the clients' scores.
OTHER_NUMBERS = (
  *('global', 'test_best', 'test_best_view', 'validation', 'last'),
  'unseen',
)
NOT_COPIED = ('checkpoints', 'tb', lock.NAME)


def merge(results: 'Results', others: 'Results') -> int:
  """Copy the runs that these results lack; return how many evaluations.

  All are compared before the first is copied.
  """
  for new in others.evaluations():
    for old in results.evaluations():
      check_agree(old, new)
  added = 0
  for run in dict.fromkeys(one.run.path for one in others.evaluations()):
    own = [one for one in others.evaluations() if one.run.path == run]
    lacking = [one for one in own if not _has(results, one)]
    if lacking:
      results.add_run(_copy(run, results.runs))
      added += len(lacking)
  return added


def check_agree(old: 'StoredEvaluation', new: 'StoredEvaluation') -> None:
  """Refuse results of one training, or of one evaluation, that differ."""
  if old.run.setting != new.run.setting:
    return
  if old.run.key != new.run.key:
    raise _other_data(
      f'{new.run.data} in {new.origin}',
      f'{old.run.data}, on which {old.path} trained with the same settings and '
      'seed',
    )
  if old.key != new.key:
    return
  data = [one.stored['data'].partition('+')[0] for one in (old, new)]
  if data[0] != data[1]:
    raise _other_data(
      f'{data[1]} in {new.origin}',
      f'{data[0]}, on which {old.origin} evaluated the same way',
    )
  for view in old.clients.scores.keys() & new.clients.scores.keys():
    _check_scores(view, old, new)
  known, given = _numbers(old.result), _numbers(new.result)
  for name in known.keys() & given.keys():
    if not math.isclose(
      known[name], given[name], rel_tol=TOLERANCE, abs_tol=TOLERANCE
    ):
      got = f'{name}={given[name]:.7g}'
      raise _disagree(got, f'{known[name]:.7g}', old, new)


def _has(results: 'Results', one: 'StoredEvaluation') -> bool:
  return all(
    results.find(one.run.key, one.key, view) for view in one.clients.scores
  )


def _copy(run: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Return the copy of a run directory, by a name that is free."""
  folder.mkdir(parents=True, exist_ok=True)
  number, path = 1, folder / run.name
  while path.exists():
    number += 1
    path = folder / f'{run.name}-{number}'
  made = folder / f'.{path.name}.tmp'
  shutil.rmtree(made, ignore_errors=True)
  shutil.copytree(run, made, ignore=_not_copied)
  made.rename(path)
  return path


def _not_copied(folder: str, names: list[str]) -> set[str]:
  """Return what is left out: links, too, which may lead anywhere."""
  return {
    name
    for name in names
    if name in NOT_COPIED or os.path.islink(os.path.join(folder, name))
  }


def _check_scores(
  view: str, old: 'StoredEvaluation', new: 'StoredEvaluation'
) -> None:
  """Refuse two results of one view that are not the same for every client."""
  for (name, one), (_, other) in zip(
    _columns(view, old), _columns(view, new), strict=True
  ):
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
      got = (
        f'{name}={other[first]:.7g} for client {new.clients.ids[first]} in the '
        f'view {view} ({far.sum()} of {len(far)} clients differ)'
      )
      raise _disagree(got, f'{one[first]:.7g}', old, new)


def _columns(view: str, one: 'StoredEvaluation') -> list[tuple[str, Any]]:
  clients = one.clients
  scores: Scores = clients.scores[view]._replace(own=None)
  return [
    ('num_clients', clients.ids),
    ('train_count', clients.train_count),
    *scores._asdict().items(),
  ]


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
  chosen = {name: result[name] for name in OTHER_NUMBERS if name in result}
  return {
    name: float(value)
    for name, value in flatten(chosen).items()
    if isinstance(value, int | float)
  }


def _other_data(got: str, expected: str) -> BadInput:
  return bad_input(
    'data',
    got=got,
    expected=expected,
    choices=['leave one of the two out', 'another --results for it'],
    cause='other image files, synthetic images in their place, or a partition '
    'that has changed',
  )


def _disagree(
  got: str, known: object, old: 'StoredEvaluation', new: 'StoredEvaluation'
) -> BadInput:
  return bad_input(
    'results',
    got=f'{got}, of {new.origin}',
    expected=f'{known}, as {old.origin} gave for the same config, data and '
    'seed',
    choices=[
      'leave one of the two out',
      'if both are from this machine, delete one',
    ],
    cause='another version of the code or of jax, or another kind of machine: '
    'training amplifies differences in the last digit',
  )
