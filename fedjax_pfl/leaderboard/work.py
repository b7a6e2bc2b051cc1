"""Train what a form lacks, choose by validation, and write what there is.

Run directories are found by their content: a repeated command trains nothing
twice, and a stopped one goes on. Each partition is trained method by method,
the baselines first, and its numbers are written when it is done.
"""

import os
import pathlib
from collections.abc import Callable, Sequence

from fedjax_pfl.leaderboard.csv_file import Row, changed_verdicts, rows_of
from fedjax_pfl.leaderboard.csv_file import write as write_csv
from fedjax_pfl.leaderboard.entries import Entry, Tuned, choose, read_entry
from fedjax_pfl.leaderboard.form import (
  Form,
  is_reference,
  settings_of,
  views_of,
)
from fedjax_pfl.leaderboard.page import write as write_page
from fedjax_pfl.leaderboard.verdicts import Board, make_board, sentences
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.settings import Settings
from fedjax_pfl.tuning.train_all import train_all

Log = Callable[[str], None]
RUNS = 'runs'  # in the folder of a leaderboard


def run(
  form: Form,
  folder: str | os.PathLike,
  log: Log,
  others: Sequence[Row] = (),
) -> pathlib.Path:
  """Train, choose and write; return the page, with a CSV beside it.

  A KeyboardInterrupt, that of a deadline too, is raised again after what is
  there was written. `others` are rows of the same form with other seeds.
  """
  folder = pathlib.Path(folder)
  log(budget(form))
  boards: dict[str, list[Entry]] = {}
  try:
    for partition in form.partitions:
      entries = boards.setdefault(partition, [])
      for number, method in enumerate(form.methods, 1):
        log(
          f'{partition}, {number} of {len(form.methods)}: '
          f'{display_name(method)}'
        )
        entries.append(
          train_method(form, method, partition, folder / RUNS, log)
        )
      write(form, boards, folder, log, others)
  except KeyboardInterrupt:
    write(form, boards, folder, log, others)
    raise
  return page_path(form, folder)


def train_method(
  form: Form, method: str, partition: str, folder: pathlib.Path, log: Log
) -> Entry:
  """Return the entry of a method: tuned, and trained with every seed."""
  views = views_of(form, method)

  def settings(rate: float, seeds: Sequence[int]) -> list[Settings]:
    return [
      settings_of(form, method, partition, rate, seed, views) for seed in seeds
    ]

  tuning = form.seeds[: form.tuning_seeds]
  grid = {rate: settings(rate, tuning) for rate in form.rates}
  paths = train_all([one for own in grid.values() for one in own], folder, log)
  size = len(tuning)
  runs = {
    rate: paths[place * size : (place + 1) * size]
    for place, rate in enumerate(form.rates)
  }
  choice = choose(runs)
  log(_chosen(choice))
  final = []
  if choice is not None:
    final = train_all(settings(choice.rate, form.seeds), folder, log)
  reference = is_reference(form, grid[form.rates[0]][0])
  return read_entry(method, choice, final, is_reference=reference)


def write(
  form: Form,
  found: dict[str, list[Entry]],
  folder: pathlib.Path,
  log: Log,
  others: Sequence[Row] = (),
) -> list[Board]:
  """Write the page and the CSV of the partitions that have both baselines."""
  made = (
    make_board(partition, entries, form.baselines)
    for partition, entries in found.items()
  )
  boards = [board for board in made if board is not None]
  if not boards:
    log('Nothing is written yet: no partition has both baselines.')
    return boards
  for board in boards:
    log('\n'.join([f'{board.partition}:', *sentences(board)]))
  rows = rows_of(form, boards)
  changes = changed_verdicts(rows, others)
  for line in changes:
    log(line)
  path = page_path(form, folder)
  write_csv(rows, path.with_suffix('.csv'))
  write_page(form, boards, path, changes)
  log(f'Leaderboard: {path}, {path.with_suffix(".csv")}')
  return boards


def page_path(form: Form, folder: str | os.PathLike) -> pathlib.Path:
  """Return where the page goes: FORM_seeds_0_1_2.html."""
  seeds = '_'.join(map(str, form.seeds))
  return pathlib.Path(folder) / f'{form.name}_seeds_{seeds}.html'


def budget(form: Form) -> str:
  """Return what a form trains, and how long that is estimated to take."""
  hours = f'{form.minutes / 60:.0f} hours'
  return (
    f'Leaderboard {form.name}: {form.num_trainings} trainings ('
    f'{len(form.partitions)} partitions, {len(form.methods)} methods, '
    f'{len(form.rates)} learning rates, {len(form.seeds)} seeds), about '
    f'{hours if form.minutes > 120 else f"{form.minutes:g} minutes"} on two '
    'cores'
  )


def _chosen(choice: Tuned | None) -> str:
  if choice is None:
    return 'No learning rate of the grid: each diverged.'
  edge = ', an end of the grid' if choice.is_edge else ''
  return (
    f'Learning rate {choice.rate:g}{edge}, view {choice.view}: '
    f'{choice.accuracy:.1f} % on validation'
  )
