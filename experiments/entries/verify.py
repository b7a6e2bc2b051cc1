"""Check entries, and compute their table again.

Marks: `reported` has no counts, so that only its own mean is known; of a
`recomputed` one the counts fit the form, and its numbers are made of them; a
`re-run` one was trained again, and 0 is in the interval of the difference.
"""

from collections.abc import Sequence

import numpy as np

from experiments.entries import entries, form_data
from fedjax_pfl.compare.form import Load, Unit
from fedjax_pfl.compare.train import train_unit
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.runs.entry import Entry
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.statistics.board import make_board, sentences
from fedjax_pfl.results.statistics.differences import (
  error_of_clients,
  over_seeds,
)
from fedjax_pfl.results.tables.board_tables import as_markdown

REPORTED, RECOMPUTED, RERUN = 'reported', 'recomputed', 're-run'


def verify(
  folders: Sequence[AnyPath],
  load_form: Load,
  against: str = '',
  rerun: str = '',
  folder: AnyPath = '',
) -> str:
  """Return the table of these entries; refuse what does not fit.

  All are of one partition of a form. Others are compared with the one that
  `against` names, '' for the first. `rerun`, a loaded method, trains the first
  entry again, in `folder`.
  """
  given = [*map(entries.read, folders)]
  compared = {(fields['form'], fields['partition']) for fields, _ in given}
  names = [entry.method for _, entry in given]
  if len(compared) > 1 or len({*names}) < len(names):
    raise bad_input(
      'entries',
      got=', '.join(f'{x["method"]} of {x["form"]}' for x, _ in given),
      expected='different methods on one partition of a form',
      choices=['one command for each form', 'the name "FedAvg (PyTorch)"'],
    )
  (form, partition) = compared.pop()
  data = form_data.load(load_form(form), partition)
  for fields, entry in given:
    entries.check(fields, entry, data)
  counted = [entry for _, entry in given if entry.after is not None]
  if against:
    known = one_of([entry.method for entry in counted], 'an entry with counts')
    known.check('--against', against)
  marks = {entry.method: RECOMPUTED for entry in counted}
  if rerun and _holds(*given[0], load_form, rerun, folder):
    marks[names[0]] = RERUN
  lines = [
    f'{fields["method"]}: {REPORTED}, {fields["accuracy"]["after"]:.2f} %; '
    'without counts there is no interval.'
    for fields, entry in given
    if entry.after is None
  ]
  if not counted:
    return '\n'.join(lines)
  title, base = f'{form}, {partition}', against or counted[0].method
  seeds = data.form.seeds
  about = About(form, '', (*marks,), (title,), (base,), seeds, (), ())
  board = make_board(about, title, counted)
  lines += sentences(board) if len(counted) > 1 else []
  return as_markdown([board], lines, marks)


def _holds(
  fields: entries.Fields,
  entry: Entry,
  load_form: Load,
  method: str,
  folder: AnyPath,
) -> bool:
  """Return whether the settings of an entry, trained again, give its mean."""
  if entry.after is None:
    raise bad_input(
      '--rerun', got=entry.method, expected='an entry with counts'
    )
  form, settings = load_form(fields['form'], (), [method]), fields['settings']
  for name in settings:
    if name != 'learning_rate' and not name.startswith('hp.'):
      expected = 'learning_rate or hp.NAME: the form says all else'
      raise bad_input(f'{entry.method}: settings', got=name, expected=expected)
  form = form._replace(candidates={**form.candidates, method: (settings,)})
  again = train_unit(Unit(form, fields['partition'], method), folder)
  if again.after is None:
    progress.log(f'{entry.method}, trained again, {again.obstacle}.')
    return False
  gaps = entry.after.accuracy - again.after.accuracy
  gap = over_seeds(np.nanmean(gaps, 1), error_of_clients(gaps))
  progress.log(
    f'{entry.method}, trained again: {again.after.means().mean():.2f} %. The '
    f'entry has {gap.mean:+.2f} points ({gap.low:+.2f} to {gap.high:+.2f}).'
  )
  return gap.low <= 0 <= gap.high
