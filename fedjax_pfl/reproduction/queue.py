"""A queue of published cells: its file, how far it is, and work on it.

The file has the cells in the order of their worth:

  [claims]
  a = 'the row of FedBABU Table 13 with s = 5'

  [[cells]]
  claim = 'a'
  table = 'fedbabu/13'
  where = 'algorithm=ditto,shards_per_client=5,client_fraction=0.1'
  seeds = [0, 1, 2]
  minutes = 70  # of one seed, without a training that an entry above has

The first seed of all entries comes first, in the order of the file, then the
next one. Every cell is listed once.

The time ends by SIGTERM, as before a machine is taken away, so there is one way
to stop: a training that is under way saves a checkpoint after the round that it
is in, and continues from there the next time. A kill costs at most the rounds
since a checkpoint.
"""

import contextlib
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.datasets import is_available
from fedjax_pfl.report.text_table import align, duration
from fedjax_pfl.reproduction import summary_rows
from fedjax_pfl.reproduction.cells import Cell, Table, filter_cells
from fedjax_pfl.reproduction.execute import execute, saved_round, what_is_left
from fedjax_pfl.reproduction.plan import Evaluation, plan
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.table_files import FOLDER, write_table
from fedjax_pfl.reproduction.toml_entries import (
  LoadTable,
  check_fields,
  is_text,
  make_each,
  read_toml,
  wrong,
)
from fedjax_pfl.runs import lock
from fedjax_pfl.training.build_method import outline_stages

DONE, DIVERGED, BLOCKED, WAITING = 'done', 'diverged', 'blocked', '.'


class Entry(NamedTuple):
  """Some cells of a table, to be run with some seeds."""

  claim: str
  table: Table
  where: str
  cells: tuple[Cell, ...]
  seeds: tuple[int, ...]
  minutes: float  # estimate of one seed


class Queue(NamedTuple):
  """The entries, and what each claim is."""

  claims: dict[str, str]
  entries: tuple[Entry, ...]


class Step(NamedTuple):
  """An entry with one of its seeds."""

  entry: Entry
  seed: int
  evaluations: list[Evaluation]

  @property
  def title(self) -> str:
    entry = self.entry
    place = f'{entry.table.name} {entry.where}, seed {self.seed}'
    return f'({entry.claim}) {place}, about {duration(60 * entry.minutes)}'


def load_queue(path: pathlib.Path, load_table: LoadTable) -> Queue:
  """Return the queue of a file; refuse it as a whole if a part is wrong."""
  content = read_toml(path)
  for name in content.keys() - {'claims', 'cells'}:
    parts = ['[claims]', '[[cells]]']
    raise wrong(str(path), name, 'a part of a queue', parts)
  claims = content.get('claims', {})
  if not isinstance(claims, dict) or not all(map(is_text, claims.values())):
    expected = "a sentence for each claim: a = 'what it is'"
    raise wrong(str(path), claims, expected)
  listed = content.get('cells', [])
  entries = make_each(str(path), 'cells', listed, _entry, claims, load_table)
  _check_distinct(path, entries)
  return Queue(claims, tuple(entries))


def _entry(given: Any, claims: Mapping[str, str], load_table: LoadTable):
  required = ('claim', 'table', 'where', 'seeds', 'minutes')
  check_fields(given, required)
  claim, name, where, seeds, minutes = (given[field] for field in required)
  if claim not in claims:
    raise wrong('claim', claim, 'a claim of [claims]', claims)
  table = load_table(name)
  cells = filter_cells(table.cells, where)
  return Entry(claim, table, where, cells, tuple(seeds), minutes)


def _check_distinct(path: pathlib.Path, entries: Sequence[Entry]) -> None:
  """Refuse a cell that is listed twice with one seed."""
  known: dict[tuple, int] = {}
  for number, entry in enumerate(entries, start=1):
    for place in map(entry.table.cells.index, entry.cells):
      for seed in entry.seeds:
        first = known.setdefault((entry.table.name, place, seed), number)
        if first != number:
          raise wrong(
            str(path),
            f'a cell of {entry.table.name}, seed {seed}, in [[cells]] {first} '
            f'and {number} ({entry.where})',
            'every cell once',
          )


def make_steps(entries: Sequence[Entry]) -> list[Step]:
  """Return all steps: the smallest seed of all entries, then the next."""
  return [
    Step(entry, seed, plan(entry.cells, (seed,)))
    for seed in sorted({seed for entry in entries for seed in entry.seeds})
    for entry in entries
    if seed in entry.seeds
  ]


def state_of(step: Step, results: Results) -> tuple[str, float]:
  """Return DONE, .. or 'round 3/32', and the minutes left by the estimate."""
  state, missing, todo = what_is_left(step.evaluations, results)
  if state:
    return state, 0.0
  saved, rounds = sum(saved_round(one, results) for one in todo), 1
  if saved:  # of all stages, as checkpoints count them
    outlines = [outline_stages(one.settings) for one in todo]
    rounds = sum(stage.rounds for stages in outlines for stage in stages)
  left = step.entry.minutes * (1 - saved / rounds) if todo else 0.0
  data = missing[0].settings.data
  if not is_available(data.dataset, data.data_dir):
    return BLOCKED, left
  return f'round {saved}/{rounds}' if saved else WAITING, left


def show_queue(queue: Queue, folder: pathlib.Path) -> None:
  """Print the claims, a line an entry, what is next and how long all takes."""
  results, steps = Results(folder), make_steps(queue.entries)
  found = [state_of(step, results) for step in steps]
  states = [state for state, _ in found]
  heads = ('', 'table', 'cells', 'estimate')
  seeds = sorted({step.seed for step in steps})
  lines = [heads + tuple(f'seed {seed}' for seed in seeds)]
  for entry in queue.entries:
    words = {
      step.seed: state
      for step, state in zip(steps, states, strict=True)
      if step.entry is entry
    }
    minutes = duration(60 * entry.minutes) if entry.minutes else '-'
    line = (entry.claim, entry.table.name, entry.where, minutes)
    lines.append(line + tuple(words.get(seed, '') for seed in seeds))
  for claim, text in queue.claims.items():
    print(f'{claim}  {text}')
  counts = [f'{states.count(DONE)} of {len(states)} done']
  counts += [
    f'{states.count(kind)} {kind}'
    for kind in (DIVERGED, BLOCKED)
    if kind in states
  ]
  left = duration(60 * sum(minutes for _, minutes in found))
  print(f'\n{align(lines)}')
  print(f'{", ".join(counts)}; {left} left by the estimates.')
  if BLOCKED in states:
    print('Blocked: the images are not here; see experiments/prepare.py.')
  for step, state in zip(steps, states, strict=True):
    if state not in (DONE, DIVERGED, BLOCKED):
      print(f'Next: {step.title}')
      break


# ---- Work through it ---------------------------------------------------------


def work_through(
  queue: Queue,
  folder: pathlib.Path,
  load_table: LoadTable,
  configs: summary_rows.Configs,
  *,
  minutes: float | None = None,
) -> None:
  """Do the steps that are open, until all are done or the time is up.

  A step that cannot be done here is left out with the sentence that says why:
  the images are missing, or a clone lacks the models of finished runs.
  """
  folder.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    lock.acquire(folder, 'results')
    stack.callback(lock.release, folder)
    summary_rows.read_csv(folder / summary_rows.SUMMARY)  # refused before a run
    for place in (folder, folder / FOLDER):
      if place.is_dir():  # what a killed process left
        atomic_files.remove_temporary(place)
    results = Results(folder)

    def write():
      """Write the summary, and the tables of the queue and of the folder."""
      summary_rows.write_summary(results, configs)
      tables = {entry.table.name: entry.table for entry in queue.entries}
      for path in sorted((folder / FOLDER).glob('*.csv')):
        name = '/'.join(path.stem.rsplit('_', 1))
        with contextlib.suppress(BadInput):  # somebody's own file
          tables[name] = load_table(name)
      for table in tables.values():
        write_table(table, results)

    with deadline(minutes):
      _do_steps(queue, results, write)
    write()
    show_queue(queue, folder)


def _do_steps(
  queue: Queue, results: Results, write: Callable[[], None]
) -> None:
  """Do every step that is open; refuse if none of these can be done here."""
  refused: dict[str, BadInput] = {}
  is_any_done = False
  for step in make_steps(queue.entries):
    if state_of(step, results)[0] in (DONE, DIVERGED):
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
