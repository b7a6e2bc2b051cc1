"""Train what a form lacks, choose by validation, and write what there is.

Run directories are found by their content: a repeated command trains nothing
twice, and a stopped one goes on. Each partition is trained method by method,
the baselines first, and its numbers are written when it is done.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.leaderboard import board, page
from fedjax_pfl.leaderboard.form import (
  Form,
  is_reference,
  settings_of,
  views_of,
  whole_stages,
)
from fedjax_pfl.leaderboard.method_results import Entry, choose, read_entry
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.tuning.train_all import train_groups

RUNS = 'runs'  # in the folder of a leaderboard


def run(
  form: Form,
  folder: str | os.PathLike,
  others: Sequence[board.Row] = (),
) -> pathlib.Path:
  """Train, choose and write; return the page, with a CSV beside it.

  A KeyboardInterrupt, that of a deadline too, is raised again after what is
  there was written. `others` are rows of the same form with other seeds.
  """
  folder = pathlib.Path(folder)
  seeds = '_'.join(map(str, form.seeds))
  path = folder / f'{form.name}_seeds_{seeds}.html'
  progress.log(budget(form))
  found: dict[str, list[Entry]] = {name: [] for name in form.partitions}
  try:
    for partition, entries in found.items():
      for number, method in enumerate(form.methods, 1):
        name = display_name(method)
        progress.log(f'{partition}, {number} of {len(form.methods)}: {name}')
        entries.append(train_method(form, method, partition, folder / RUNS))
      write(form, found, path, others)
  except KeyboardInterrupt:
    write(form, found, path, others)
    raise
  return path


def train_method(
  form: Form, method: str, partition: str, folder: pathlib.Path
) -> Entry:
  """Return the entry of a method: tuned, and trained with every seed."""
  views = views_of(form, method)

  def settings(rate, seeds):
    return [
      settings_of(form, method, partition, rate, seed, views) for seed in seeds
    ]

  grid = [
    settings(rate, form.seeds[: form.tuning_seeds]) for rate in form.rates
  ]
  groups = train_groups(grid, folder, progress.log)
  choice, final = choose(dict(zip(form.rates, groups, strict=True))), []
  if choice is None:
    progress.log('No learning rate of the grid: each diverged.')
  else:
    edge = ', an end of the grid' * choice.is_edge
    progress.log(
      f'Learning rate {choice.rate:g}{edge}, view {choice.view}: '
      f'{choice.accuracy:.1f} % on validation'
    )
    chosen = [settings(choice.rate, form.seeds)]
    (final,) = train_groups(chosen, folder, progress.log)
  reference = is_reference(form, grid[0][0])
  whole = whole_stages(form, method)
  return read_entry(method, choice, final, is_reference=reference, whole=whole)


def write(
  form: Form,
  found: Mapping[str, Sequence[Entry]],
  path: pathlib.Path,
  others: Sequence[board.Row] = (),
) -> None:
  """Write the page and the CSV of the partitions that have both baselines.

  Files with more rows are kept, unless these are all rows of the form.
  """
  made = (board.make_board(form, *one) for one in found.items())
  boards = [one for one in made if one]
  if not boards:
    progress.log('Nothing is written yet: no partition has both baselines.')
    return
  for one in boards:
    progress.log('\n'.join([f'{one.partition}:', *board.sentences(one)]))
  rows = [row for one in boards for row in one.rows]
  table = path.with_suffix('.csv')
  stored = table.read_bytes().count(b'\n') - 1 if table.exists() else 0
  # A finished leaderboard may be repeated, and stopped.
  if len(rows) < min(stored, len(form.partitions) * len(form.methods)):
    progress.log(f'{table} has {stored} rows, more than now: it is kept.')
    return
  changes = board.changed_verdicts(rows, others)
  for line in changes:
    progress.log(line)
  board.write(rows, table)
  html = page.render(form, boards, changes)
  atomic_files.write_bytes(path, html.encode())
  progress.log(f'Leaderboard: {path}, {table}')


def budget(form: Form) -> str:
  """Return what a form trains, and how long that is estimated to take."""
  minutes = f'{form.minutes:g} minutes'
  time = f'{form.minutes / 60:.0f} hours' if form.minutes > 120 else minutes
  return (
    f'Leaderboard {form.name}: {form.num_trainings} trainings ('
    f'{len(form.partitions)} partitions, {len(form.methods)} methods, '
    f'{len(form.rates)} learning rates, {len(form.seeds)} seeds), about '
    f'{time} on two cores'
  )
