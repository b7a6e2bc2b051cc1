"""Do the steps of a queue, one after the other, and write what they gave."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.cells import Figure, Table
from fedjax_pfl.reproduction.execution.execute import (
  Workspace,
  execute,
  open_workspace,
)
from fedjax_pfl.reproduction.output.comparison_table import FOLDER
from fedjax_pfl.reproduction.queue import show
from fedjax_pfl.reproduction.queue.deadline import deadline
from fedjax_pfl.reproduction.queue.entries import Queue
from fedjax_pfl.reproduction.queue.steps import (
  BLOCKED,
  OPEN,
  State,
  Step,
  make_steps,
  state_of,
)
from fedjax_pfl.reproduction.write_results import (
  check_summary,
  write_summary,
  write_table,
)
from fedjax_pfl.runs import lock
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import DataOf


class QueueJob:
  """A queue, and what its steps are planned and written with."""

  def __init__(
    self,
    queue: Queue,
    load_table: Callable[[str], Table | Figure],
    data_of: DataOf,
    configs: Mapping[str, Settings],
    follow: Callable[[pathlib.Path], None] = lambda folder: None,
  ):
    """See `load_queue` and `TableJob`, which take the same.

    follow: what to do in the folder once all cells are done, if time is left.
    """
    self._queue = queue
    self._load_table = load_table
    self._data_of = data_of
    self._configs = configs
    self._follow = follow

  def dry_run(self, folder: pathlib.Path) -> None:
    """Print what is done, what is next, and the hours left by the estimates."""
    workspace = open_workspace(folder)
    steps = self._steps(workspace)
    show.print_queue(self._queue, steps, states_of(steps, workspace))

  def run(self, folder: pathlib.Path, minutes: float | None = None) -> None:
    """Do the steps that are open, until all are done or the time is up."""
    with locked(folder):
      check_summary(folder)
      for place in (folder, folder / FOLDER):
        if place.is_dir():  # what a killed process left
          atomic_files.remove_temporary(place)
      workspace = open_workspace(folder)
      steps = self._steps(workspace)
      _check_any_open(states_of(steps, workspace))
      with deadline(minutes) as is_up_fn:
        try:
          self._work(steps, workspace)
          self._follow(folder)
        except KeyboardInterrupt:
          if not is_up_fn():
            raise
          progress.log(f'The {minutes:g} minutes are over.')
      self._write(self._tables(folder), workspace)
      show.print_queue(self._queue, steps, states_of(steps, workspace))

  def _steps(self, workspace: Workspace) -> list[Step]:
    return make_steps(self._queue.entries, workspace, self._data_of)

  def _work(self, steps: Sequence[Step], workspace: Workspace) -> None:
    for step in steps:
      state = state_of(step, workspace)
      if state.obstacle is not None:
        progress.log(f'{show.title(step)} is left out. {state.obstacle}')
      if state.kind not in OPEN:
        continue
      progress.log(show.headline(step, state))
      execute(step.evaluations, workspace, progress.log)
      # A training is in cells of several tables.
      self._write(self._tables(workspace.folder), workspace)

  def _tables(self, folder: pathlib.Path) -> list[Table]:
    """Return the tables of the queue, and those that stand in the folder."""
    names = [entry.table.name for entry in self._queue.entries]
    for path in sorted((folder / FOLDER).glob('*.csv')):
      names.append('/'.join(path.stem.rsplit('_', 1)))
    tables = {}
    for name in names:
      with contextlib.suppress(BadInput):  # somebody's own file
        tables[name] = self._load_table(name)
    return [one for one in tables.values() if isinstance(one, Table)]

  def _write(self, tables: Sequence[Table], workspace: Workspace) -> None:
    rows = write_summary(workspace, self._configs, progress.log)
    for table in tables:
      write_table(table, (0,), workspace, self._data_of, rows)


def states_of(steps: Sequence[Step], workspace: Workspace) -> list[State]:
  return [state_of(step, workspace) for step in steps]


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
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


def _check_any_open(states: Sequence[State]) -> None:
  """Refuse a queue of which nothing can be run here, for its first reason."""
  blocked = [state for state in states if state.kind == BLOCKED]
  if blocked and not any(state.kind in OPEN for state in states):
    raise blocked[0].obstacle
