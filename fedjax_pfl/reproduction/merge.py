"""Results of another machine: refused if they disagree, else copied.

A run is copied without its checkpoints, under a name that begins with a dot
until the copy is finished. What is here already is not copied.
"""

import os
import pathlib
import shutil
from typing import TYPE_CHECKING

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
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
  lacking: dict[pathlib.Path, int] = {}
  for one in others.evaluations():
    for view in one.clients.scores:
      if results.find(one.run.key, one.key, view) is None:
        lacking[one.run.path] = lacking.get(one.run.path, 0) + 1
        break
  for run in lacking:
    results.add_run(_copy(run, results.runs))
  return sum(lacking.values())


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
  known, given = _numbers(old), _numbers(new)
  for name in filter(given.__contains__, known):
    _check_equal(name, known[name], given[name], old, new)


def _numbers(one: 'StoredEvaluation') -> dict[str, np.ndarray]:
  """Return all numbers of an evaluation by names: 'correct of initial' [K]."""
  clients = one.clients
  found = {'num_clients': clients.ids, 'train_count': clients.train_count}
  for view, scores in clients.scores.items():
    for name, values in scores._replace(own=None)._asdict().items():
      if values is not None:  # an older version lacks some scores
        found[f'{name} of {view}'] = values
  chosen = {name: one.result.get(name, {}) for name in OTHER_NUMBERS}
  for name, value in flatten(chosen).items():
    if isinstance(value, int | float):
      found[name] = value
  return {name: np.asarray(value, float) for name, value in found.items()}


def _check_equal(
  name: str,
  known: np.ndarray,
  given: np.ndarray,
  old: 'StoredEvaluation',
  new: 'StoredEvaluation',
) -> None:
  if known.shape != given.shape:
    got, want = f'{name} of {len(given)} clients', f'{len(known)}'
  else:
    near = {'rtol': TOLERANCE, 'atol': TOLERANCE, 'equal_nan': True}
    far = np.atleast_1d(~np.isclose(known, given, **near))
    if not far.any():
      return
    at = int(np.argmax(far))
    got, want = (f'{np.ravel(x)[at]:.7g}' for x in (given, known))
    got = f'{name}={got}'
    if known.ndim:
      got += f' for client {at} ({far.sum()} of {far.size} clients differ)'
  raise bad_input(
    'results',
    got=f'{got}, of {new.origin}',
    expected=f'{want}, as {old.origin} gave for the same config, data and seed',
    choices=[
      'leave one of the two out',
      'if both are from this machine, delete one',
    ],
    cause='another version of the code or of jax, or another kind of machine: '
    'training amplifies differences in the last digit',
  )


def _other_data(got: str, expected: str) -> BadInput:
  return bad_input(
    'data',
    got=got,
    expected=expected,
    choices=['leave one of the two out', 'another --results for it'],
    cause='other image files, synthetic images in their place, or a partition '
    'that has changed',
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
