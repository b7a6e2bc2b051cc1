"""Train the queue of published cells until all is done, or the time is up.

The time ends by SIGTERM, as before a machine is taken away: a training that is
under way saves a checkpoint after the round that it is in, and continues from
there the next time.
"""

import contextlib
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction import summary_rows
from fedjax_pfl.reproduction.cells import Table
from fedjax_pfl.reproduction.execute import execute
from fedjax_pfl.reproduction.queue import (
  DIVERGED,
  DONE,
  Queue,
  make_steps,
  show_queue,
  state_of,
)
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.table_files import FOLDER, write_table
from fedjax_pfl.reproduction.toml_entries import LoadTable
from fedjax_pfl.runs import lock


def work_through(
  queue: Queue,
  folder: pathlib.Path,
  load_table: LoadTable,
  configs: summary_rows.Configs,
  *,
  minutes: float | None = None,
  follow: Callable[[pathlib.Path], None] = lambda folder: None,
) -> None:
  """Do the steps that are open, until all are done or the time is up.

  A step that cannot be done here is left out with the sentence that says why:
  the images are missing, or a clone lacks the models of finished runs.

  Args:
    queue: the entries, in their order.
    folder: the folder of results.
    load_table: returns a table by its name.
    configs: settings of the config files by name, for the summary.
    minutes: when to stop; None: when all is done.
    follow: what to do in the folder once all cells are done, if time is left.
  """
  with _locked(folder):
    summary_rows.read_csv(folder / summary_rows.SUMMARY)  # refused before a run
    for place in (folder, folder / FOLDER):
      if place.is_dir():  # what a killed process left
        atomic_files.remove_temporary(place)
    results = Results(folder)

    def write():
      summary_rows.write_summary(results, configs)
      for table in _tables(queue, folder, load_table):
        write_table(table, results)

    with deadline(minutes):
      _do_steps(queue, results, write)
      follow(folder)
    write()
    show_queue(queue, folder)


def _do_steps(
  queue: Queue, results: Results, write: Callable[[], None]
) -> None:
  """Do every step that is open; refuse if none of these can be done here."""
  refused: dict[str, BadInput] = {}
  is_any_done = False
  for step in make_steps(queue.entries):
    if state_of(step, results).words in (DONE, DIVERGED):
      continue
    progress.log(step.title)
    try:
      execute(step.evaluations, results)
    except BadInput as error:
      reason = 'as above.' if str(error) in refused else error
      progress.log(f'{step.title} is left out: {reason}')
      refused.setdefault(str(error), error)
    else:
      is_any_done = True
      write()  # a training is in cells of several tables
  if refused and not is_any_done:
    raise next(iter(refused.values()))


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
  return [*tables.values()]


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
  """Hold the lock of a folder of results; refuse where a queue works on it."""

  def is_worked_on(folder, owner):
    return bad_input(
      'results',
      got=f'{folder}, where {owner} works through a queue',
      expected='a folder of results with one such process',
      choices=['wait until it is done', 'stop it', 'another --results'],
      cause='the same command was started twice',
    )

  folder.mkdir(parents=True, exist_ok=True)
  lock.acquire(folder, is_worked_on)
  try:
    yield
  finally:
    lock.release(folder)


@contextlib.contextmanager
def deadline(minutes: float | None) -> Iterator[None]:
  """End the block by SIGTERM when the time is up, and say so."""
  is_up = threading.Event()

  def stop():
    is_up.set()
    os.kill(os.getpid(), signal.SIGTERM)

  timer = threading.Timer((minutes or 0) * 60, stop)
  timer.daemon = True
  if minutes is not None:
    timer.start()
  try:
    yield
  except KeyboardInterrupt:
    if not is_up.is_set():
      raise
    progress.log(f'The {minutes:g} minutes are over; the same command goes on.')
  finally:
    timer.cancel()
