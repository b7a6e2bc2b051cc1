"""Do the steps of a queue, one after the other, and write what they gave."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction import summary
from fedjax_pfl.reproduction.cells import Table
from fedjax_pfl.reproduction.comparison_table import FOLDER
from fedjax_pfl.reproduction.execute import execute
from fedjax_pfl.reproduction.queue import show
from fedjax_pfl.reproduction.queue.deadline import deadline
from fedjax_pfl.reproduction.queue.entries import Queue
from fedjax_pfl.reproduction.queue.steps import (
  BLOCKED,
  OPEN,
  make_steps,
  state_of,
)
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.toml_entries import LoadTable
from fedjax_pfl.runs import lock
from fedjax_pfl.training.build_data import DataOf


def show_queue(queue: Queue, folder: pathlib.Path, data_of: DataOf) -> None:
  """Print what is done, what is next, and the hours left by the estimates."""
  results = Results(folder)
  steps = make_steps(queue.entries, results, data_of)
  show.print_queue(queue, steps, [state_of(one, results) for one in steps])


def work_through(
  queue: Queue,
  folder: pathlib.Path,
  load_table: LoadTable,
  data_of: DataOf,
  configs: summary.Configs,
  *,
  minutes: float | None = None,
  follow: Callable[[pathlib.Path], None] = lambda folder: None,
) -> None:
  """Do the steps that are open, until all are done or the time is up.

  Args:
    queue: the entries, in their order.
    folder: the folder of results.
    load_table: returns a table by its name.
    data_of: see `make_data_of`.
    configs: settings of the config files by name, for the summary.
    minutes: when to stop; None: when all is done.
    follow: what to do in the folder once all cells are done, if time is left.
  """
  with _locked(folder):
    summary.read_csv(folder / summary.SUMMARY)  # refused before a run
    for place in (folder, folder / FOLDER):
      if place.is_dir():  # what a killed process left
        atomic_files.remove_temporary(place)
    results = Results(folder)
    steps = make_steps(queue.entries, results, data_of)

    def write():
      rows = summary.write_summary(results, configs, progress.log)
      for table in _tables(queue, folder, load_table):
        summary.write_table(table, (0,), results, data_of, rows)

    _check_any_open([state_of(one, results) for one in steps])
    with deadline(minutes) as is_up_fn:
      try:
        for step in steps:
          state = state_of(step, results)
          if state.obstacle is not None:
            progress.log(f'{show.title(step)} is left out. {state.obstacle}')
          if state.kind in OPEN:
            progress.log(show.headline(step, state))
            execute(step.evaluations, results, progress.log)
            write()  # a training is in cells of several tables
        follow(folder)
      except KeyboardInterrupt:
        if not is_up_fn():
          raise
        progress.log(f'The {minutes:g} minutes are over.')
    write()
    show.print_queue(queue, steps, [state_of(one, results) for one in steps])


def _tables(
  queue: Queue, folder: pathlib.Path, load_table: LoadTable
) -> list[Table]:
  """Return the tables of the queue, and those that stand in the folder."""
  names = [entry.table.name for entry in queue.entries]
  for path in sorted((folder / FOLDER).glob('*.csv')):
    names.append('/'.join(path.stem.rsplit('_', 1)))
  tables = {}
  for name in names:
    with contextlib.suppress(BadInput):  # somebody's own file
      tables[name] = load_table(name)
  return [one for one in tables.values() if isinstance(one, Table)]


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
  """Hold the lock of a folder of results; refuse where a queue works on it."""
  folder.mkdir(parents=True, exist_ok=True)
  lock.acquire(folder, _is_worked_on)
  try:
    yield
  finally:
    lock.release(folder)


def _is_worked_on(folder: pathlib.Path, owner: str) -> BadInput:
  return bad_input(
    'results',
    got=f'{folder}, where {owner} works through a queue',
    expected='a folder of results with one such process',
    choices=['wait until it is done', 'stop it', 'another --results'],
    cause='the same command was started twice',
  )


def _check_any_open(states: list) -> None:
  """Refuse a queue of which nothing can be run here, for its first reason."""
  blocked = [state for state in states if state.kind == BLOCKED]
  if blocked and not any(state.kind in OPEN for state in states):
    raise blocked[0].obstacle
