"""A queue of published cells: its file, and how far it is.

The file has the cells in the order of their worth:

  [claims]
  a = 'the row of FedBABU Table 13 with s = 5'

  [[cells]]
  claim = 'a'
  table = 'fedbabu/13'
  where = 'algorithm=ditto,shards_per_client=5,client_fraction=0.1'
  seeds = [0, 1, 2]
  minutes = 70  # of one seed, without a training that an entry above has
  note = 'what the reader should know'  # may be left out

The first seed of all entries comes first, in the order of the file, then the
next one. Every cell is listed once. What may follow the cells, above [claims]:

  leaderboards = ['cifar10']  # forms in configs/leaderboard.py
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.data.datasets import is_available
from fedjax_pfl.report.text_table import align, duration
from fedjax_pfl.reproduction.cells import Cell, Table, filter_cells
from fedjax_pfl.reproduction.execute import saved_round, what_is_left
from fedjax_pfl.reproduction.plan import Evaluation, plan
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.toml_entries import (
  LoadTable,
  check_fields,
  is_text,
  make_each,
  read_toml,
  wrong,
)

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
  leaderboards: tuple[str, ...] = ()  # forms, after all cells


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


class State(NamedTuple):
  """How far a step is."""

  words: str  # one of those above, or 'round 3/32'
  minutes: float = 0.0  # left by the estimate


def load_queue(path: pathlib.Path, load_table: LoadTable) -> Queue:
  """Return the queue of a file; refuse it as a whole if a part is wrong."""
  content = read_toml(path)
  for name in content.keys() - {'claims', 'cells', 'leaderboards'}:
    parts = ['[claims]', '[[cells]]', 'leaderboards']
    raise wrong(str(path), name, 'a part of a queue', parts)
  claims, boards = content.get('claims', {}), content.get('leaderboards', [])
  if not isinstance(claims, dict) or not all(map(is_text, claims.values())):
    expected = "a sentence for each claim: a = 'what it is'"
    raise wrong(str(path), claims, expected)
  if not isinstance(boards, list) or not all(map(is_text, boards)):
    expected = "forms of the leaderboard, such as ['cifar10']"
    raise wrong(str(path), boards, expected)

  def make(given):
    return _entry(given, claims, load_table)

  entries = make_each(str(path), 'cells', content.get('cells', []), make)
  _check_distinct(path, entries)
  return Queue(claims, tuple(entries), tuple(boards))


def _entry(given: Any, claims: Mapping[str, str], load_table: LoadTable):
  required = ('claim', 'table', 'where', 'seeds', 'minutes')
  check_fields(given, required, ['note'])
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


def state_of(step: Step, results: Results) -> State:
  """Return how far a step is."""
  state, missing, todo = what_is_left(step.evaluations, results)
  if state:
    return State(state)
  rounds = sum(one.settings.training.num_rounds for one in todo)
  saved = sum(saved_round(one, results) for one in todo)
  left = step.entry.minutes * (1 - saved / rounds) if rounds else 0.0
  data = missing[0].settings.data
  if not is_available(data.dataset, data.data_dir):
    return State(BLOCKED, left)
  return State(f'round {saved}/{rounds}' if saved else WAITING, left)


def show_queue(queue: Queue, folder: pathlib.Path) -> None:
  """Print the claims, a line an entry, what is next and how long all takes."""
  results, steps = Results(folder), make_steps(queue.entries)
  states = [state_of(step, results) for step in steps]
  heads = ('', 'table', 'cells', 'estimate')
  seeds = sorted({step.seed for step in steps})
  lines = [heads + tuple(f'seed {seed}' for seed in seeds)]
  for entry in queue.entries:
    words = {
      step.seed: state.words
      for step, state in zip(steps, states, strict=True)
      if step.entry is entry
    }
    minutes = duration(60 * entry.minutes) if entry.minutes else '-'
    line = (entry.claim, entry.table.name, entry.where, minutes)
    lines.append(line + tuple(words.get(seed, '') for seed in seeds))
  for claim, text in queue.claims.items():
    print(f'{claim}  {text}')
  print(f'\n{align(lines)}\n{summary_of(states)}')
  if any(one.words == BLOCKED for one in states):
    print('Blocked: the images are not here; see experiments/prepare.py.')
  for step, state in zip(steps, states, strict=True):
    if state.words not in (DONE, DIVERGED, BLOCKED):
      print(f'Next: {step.title}')
      break


def summary_of(states: Sequence[State]) -> str:
  """Return '3 of 4 done, 1 diverged; 6 min left by the estimates.'"""
  words = [state.words for state in states]
  text = f'{words.count(DONE)} of {len(words)} done'
  for kind in (DIVERGED, BLOCKED):
    if kind in words:
      text += f', {words.count(kind)} {kind}'
  left = duration(60 * sum(state.minutes for state in states))
  return f'{text}; {left} left by the estimates.'
