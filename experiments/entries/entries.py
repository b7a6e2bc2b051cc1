"""An entry of the leaderboard: a method on one partition of a form.

entry.json   the fields of `RULES`
clients.npz  correct, total [S, V, K], seed [S], view [V]: right answers and
             tests of each client, 'before' and 'after' personalisation, or
             'after' alone; without this file nothing can be computed again
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.entries import form_data
from experiments.entries.form_data import MOST, FormData
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.compare.form import Load
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule, at_least, count, is_number, one_of
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.entry import METHOD, Choice, Costs, Counts, Entry

FIELDS, CLIENTS = 'entry.json', 'clients.npz'
ARRAYS = 'correct', 'total', 'seed', 'view'
VIEWS = ['before', 'after'], ['after']
COSTS = Costs._fields[:-1]  # without the time
ROUNDED = 0.01  # points: a mean may be stated with two decimals
Fields = dict[str, Any]


def _is_accuracy(value: Any) -> bool:
  is_object = isinstance(value, dict) and sorted(value)[::-1] in VIEWS
  return is_object and all(map(is_number, value.values()))


def _is_line(value: Any) -> bool:
  """Return whether a value may stand in a table, and on a terminal."""
  is_text = isinstance(value, str) and value.strip() != ''
  return is_text and value.isprintable() and not {*value} & {*'|<\\'}


TEXT = Rule(_is_line, 'a line of text, without |, < and \\')
WORDS = 'method', 'authors', 'paper', 'code', 'framework', 'view'
RULES = {
  **dict.fromkeys(('form', 'partition'), TEXT),
  'fingerprints': Rule(lambda value: isinstance(value, list), 'one a seed'),
  **dict.fromkeys(WORDS, TEXT),
  'code': TEXT._replace(expected='an address, or a commit: --code=...'),
  'settings': Rule(lambda value: isinstance(value, dict), 'names and values'),
  'trainings': count('trainings, those that chose the settings too'),
  **dict.fromkeys(COSTS, at_least(0)),
  'accuracy': Rule(_is_accuracy, 'percentages: before, after, or after alone'),
}


def blank(data: FormData) -> Fields:
  """Return the fields, of which those of the form are filled in."""
  known = data.form.name, data.partition, data.fingerprints
  return dict.fromkeys(RULES) | dict(zip(RULES, known, strict=False))


def read(folder: AnyPath) -> tuple[Fields, Entry]:
  """Return what a folder holds; refuse other fields, or other shapes."""
  folder = Path(folder)
  try:
    fields = atomic_files.parse_object(atomic_files.read_bytes(folder / FIELDS))
  except (OSError, ValueError) as error:
    cause = f'{type(error).__name__}: {error}'
    expected = f'a folder with {FIELDS}'
    raise bad_input(
      'entry', got=str(folder), expected=expected, cause=cause
    ) from error
  check_fields(fields, folder)
  choice = Choice(fields['settings'], fields['view'], np.nan, ())
  entry = Entry(fields['method'], METHOD, choice)
  if not (folder / CLIENTS).exists():
    return fields, entry
  arrays = atomic_files.read_npz(folder / CLIENTS)
  shapes = {name: array.shape for name, array in arrays.items()}
  views = [*map(str, np.ravel(arrays.get('view', ())))]
  if (
    {*arrays} != {*ARRAYS}
    or views not in VIEWS
    or shapes['correct'] != shapes['total']
    or shapes['total'][:-1] != shapes['seed'] + shapes['view']
    or any(arrays[name].dtype.kind not in 'iu' for name in ARRAYS[:-1])
  ):
    expected = 'whole numbers correct, total [S, V, K] and seed [S]; view [V]'
    raise bad_input(f'{folder}: {CLIENTS}', got=shapes, expected=expected)
  split = zip(
    *(np.moveaxis(arrays[x].astype(int), 1, 0) for x in ARRAYS[:2]), strict=True
  )
  seeds = tuple(arrays['seed'].tolist())
  costs = Costs(*(fields[name] for name in COSTS), seconds=0.0)
  counts = dict(zip(views, itertools.starmap(Counts, split), strict=True))
  return fields, entry._replace(
    seeds=seeds, costs=(costs,) * len(seeds), **counts
  )


def check_fields(fields: Fields, folder: AnyPath) -> None:
  """Refuse values of other types, and other fields."""
  if {*fields} != {*RULES}:
    expected = f'the fields of {FIELDS}, all and no other'
    got = [*fields]
    raise bad_input(f'{folder}', got=got, expected=expected, choices=RULES)
  for name, rule in RULES.items():
    rule.check(f'{folder}: {name}', fields[name])


def write(fields: Fields, entry: Entry, out: AnyPath) -> None:
  """Write the folder of an entry, which is new."""
  views = counts_of(entry)
  stacks = map(np.stack, zip(*views.values(), strict=True), (1, 1))
  counts = (stack.astype(np.int32) for stack in stacks)
  arrays = *counts, entry.seeds, [*views]
  named = dict(zip(ARRAYS, map(np.array, arrays), strict=True))
  with atomic_files.made_whole(out) as folder:
    folder.mkdir()
    atomic_files.write_json(folder / FIELDS, fields)
    atomic_files.write_npz(folder / CLIENTS, named, compressed=True)


def counts_of(entry: Entry) -> dict[str, Counts]:
  """Return the counts of the views that an entry has."""
  views = {name: getattr(entry, name) for name in VIEWS[0]}
  return {name: views[name] for name in views if views[name] is not None}


def check(fields: Fields, entry: Entry, data: FormData) -> None:
  """Refuse what does not fit the form, its clients or its own counts."""

  def need(holds: bool, name: str, got: Any, expected: str) -> None:
    if not holds:
      raise bad_input(f'{entry.method}: {name}', got=got, expected=expected)

  form, tests = data.form, data.tests
  most = {
    'trainings': (form.trainings, 'the budget, with those that tune'),
    'gradients': (data.gradients, f'{MOST} times those of FedAvg'),
  }
  given, right = fields['fingerprints'], data.fingerprints
  expected = f'{right}, images and rows as export-partition writes them'
  need(given == right, 'fingerprints', given, expected)
  for name, (number, why) in most.items():
    expected = f'{number:,.0f} or fewer, {why}'
    need(fields[name] <= number, name, fields[name], expected)
  if entry.after is None:
    return
  expected = f'the seeds of the form, {form.seeds}'
  need(entry.seeds == form.seeds, 'seed', entry.seeds, expected)
  for view in VIEWS[0]:
    counts, stated = getattr(entry, view), fields['accuracy'].get(view)
    if counts is None:
      need(stated is None, f'accuracy {view}', stated, f'counts of {view}, too')
      continue
    shape = counts.total.shape
    need(shape == tests.shape, 'clients', shape[1], f'{tests.shape[1]}')
    for name, low in (('total', tests), ('correct', 0)):
      value = getattr(counts, name)
      for at, client in np.argwhere((value < low) | (value > tests))[:1]:
        got = f'{value[at, client]} of client {client}, seed {entry.seeds[at]}'
        fewer = ' or fewer' * (name != 'total')
        expected = f'{tests[at, client]}, its tests,{fewer}'
        need(False, f'{name} {view}', got, expected)
    mean = float(counts.means().mean())
    holds = stated is not None and abs(mean - stated) <= ROUNDED
    expected = f'{mean:.2f}, the mean of the counts over clients, then seeds'
    need(holds, f'accuracy {view}', stated, expected)


# ---- From the counts of a comparison to an entry -----------------------------


def submit(
  source: AnyPath,
  load_form: Load,
  method: str,
  partition: str,
  stated: Mapping[str, str],
  out: AnyPath,
) -> None:
  """Write the entry of one method of a comparison into a new folder.

  The method is named as in tables or in configs; `partition` is one of the
  form, '' if it has one alone; `stated` are authors, paper and code.
  """
  about, stored = stored_counts.read(stored_counts.files_of(source))
  form = load_form(about.name)
  if len(stored) == 1:
    partition = partition or next(iter(stored))
  one_of([*stored], 'a partition of it').check('--partition', partition)
  known = {
    name: entry
    for entry in stored[partition]
    if entry.kind == METHOD and not entry.obstacle
    for name in (entry.method, paper_name(entry.method))
  }
  one_of([*known], 'a method with numbers').check('--method', method)
  data, entry = form_data.load(form, partition), known[method]
  costs = np.mean(entry.costs, 0).tolist()
  fields = blank(data) | {
    'method': paper_name(entry.method),
    **stated,
    'framework': f'fedjax_pfl {about.version}',
    'settings': entry.choice.fields,
    'view': entry.choice.view,
    'trainings': form.trainings,
    **dict(zip(COSTS, costs, strict=False)),
    'accuracy': {
      view: round(float(counts.means().mean()), 2)
      for view, counts in counts_of(entry).items()
    },
  }
  # Nobody else has an edited commit, and no commit of ours has your file.
  has_commit = not (about.commit.endswith('-dirty') or is_code(entry.method))
  fields['code'] = stated['code'] or about.commit * has_commit
  check_fields(fields, out)
  check(fields, entry, data)
  write(fields, entry, out)
