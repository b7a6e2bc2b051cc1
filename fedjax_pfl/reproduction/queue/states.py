"""How far the entries of a queue are, seed by seed: as a table."""

from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl import algorithms
from fedjax_pfl.data import is_available
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.execute import is_trained, lacking
from fedjax_pfl.reproduction.plan import Evaluation, distinct_trainings, plan
from fedjax_pfl.reproduction.queue.entries import Entry, Queue
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import checkpoint

DONE, DIVERGED, BLOCKED, WAITING = 'done', 'diverged', 'blocked', '.'
NEXT = 'next'
# The papers' letters, as in docs/.
LETTERS = {
  'shards_per_client': 's=',
  'client_fraction': 'f=',
  'local_epochs': 'tau=',
  'num_clients': 'K=',
}


class Step(NamedTuple):
  """An entry with one of its seeds."""

  entry: Entry
  seed: int
  evaluations: list[Evaluation]

  @property
  def title(self) -> str:
    """Return '(a) Ditto s=5 f=0.1 tau=10, seed 0, fedbabu/13'."""
    name = f'{methods(self.entry)} {setting(self.entry)}'.strip()
    place = f'seed {self.seed}, {self.entry.table.name}'
    return f'({self.entry.claim}) {name}, {place}'


class State(NamedTuple):
  """How far a step is."""

  words: str  # 'done', 'done 12 min', 'round 3/32', ..
  minutes: float = 0.0  # left by the estimate

  @property
  def is_open(self) -> bool:
    """Return whether there is something to run, and the images are here."""
    ended = self.words.startswith((DONE, DIVERGED))
    return not ended and self.words != BLOCKED


def make_steps(entries: Sequence[Entry]) -> list[Step]:
  """Return all steps: the first seed of every entry, then the next seeds."""
  places = range(max(len(entry.seeds) for entry in entries))
  return [
    Step(entry, seed, plan(entry.cells, (seed,)))
    for place in places
    for entry in entries
    for seed in entry.seeds[place : place + 1]
  ]


def state_of(step: Step, results: Results) -> State:
  """Return how far a step is."""
  missing = [one for one in step.evaluations if lacking(one, results)]
  if not missing:
    return State(_done(step, results))
  missing = [one for one in missing if not results.diverged(one.training)]
  if not missing:
    return State(DIVERGED)
  todo = [
    one for one in distinct_trainings(missing) if not is_trained(one, results)
  ]
  rounds = sum(one.settings.num_rounds for one in todo)
  saved = 0
  for path in filter(None, map(results.path_of, todo)):
    saved += max(checkpoint.steps(path / 'checkpoints'), default=0)
  left = step.entry.minutes * (1 - saved / rounds) if rounds else 0.0
  data = missing[0].settings.data
  if not is_available(data.dataset, data.data_dir):
    return State(BLOCKED, left)
  return State(f'round {saved}/{rounds}' if saved else WAITING, left)


def _done(step: Step, results: Results) -> str:
  """Return 'done 12 min'; 'done' if the runs are those of another entry."""
  wanted = {results.key_of(one.training) for one in step.evaluations}
  taken = {
    one.run.key: one.run.result['seconds']
    for one in results.evaluations()
    if one.run.key in wanted
  }
  if not step.entry.minutes:
    return DONE
  return f'{DONE} {hours(sum(taken.values()) / 60)}'


def print_queue(
  queue: Queue, steps: Sequence[Step], states: Sequence[State]
) -> None:
  """Print the claims, the table, what is next and how long all takes."""
  place = next((n for n, one in enumerate(states) if one.is_open), None)
  shown = {}
  for number, (step, state) in enumerate(zip(steps, states, strict=True)):
    is_next = number == place and state.words == WAITING
    where = step.entry.table.name, step.entry.where, step.seed
    shown[where] = NEXT if is_next else state.words
  seeds = sorted({step.seed for step in steps})
  heads = ('', 'method', 'setting', 'table', 'estimate')
  lines = [heads + tuple(f'seed {seed}' for seed in seeds)]
  for entry in queue.entries:
    line = (entry.claim, methods(entry), setting(entry), entry.table.name)
    line += (hours(entry.minutes) if entry.minutes else '-',)
    where = entry.table.name, entry.where
    lines.append(line + tuple(shown.get((*where, one), '') for one in seeds))
  for claim, text in queue.claims.items():
    print(f'{claim}  {text}')
  print(f'\n{align(lines)}')
  print(summary(states))
  if any(one.words == BLOCKED for one in states):
    print('Blocked: the images are not here; see experiments/prepare.py.')
  if place is not None:
    print(f'Next: {steps[place].title}, {announced(states[place])}')


def summary(states: Sequence[State]) -> str:
  """Return '3 of 4 done, 1 diverged; 6 min left by the estimates.'"""
  text = ''
  for kind in (DIVERGED, BLOCKED):
    if number := sum(state.words == kind for state in states):
      text += f', {number} {kind}'
  done = sum(state.words.startswith(DONE) for state in states)
  left = hours(sum(state.minutes for state in states))
  return f'{done} of {len(states)} done{text}; {left} left by the estimates.'


def announced(state: State) -> str:
  """Return 'about 12 min', with the round of a training that was stopped."""
  rounds = '' if state.words == WAITING else f', {state.words}'
  return f'about {hours(state.minutes)}{rounds}'


def methods(entry: Entry) -> str:
  """Return the names of the methods of an entry."""
  known = algorithms.available()
  names = []
  for cell in entry.cells:  # superfed_mm and partial_update are variants
    name = cell.published.algorithm
    names.append(name if name in known else cell.settings['algorithm'])
  return ', '.join(map(display_name, dict.fromkeys(names)))


def setting(entry: Entry) -> str:
  """Return the conditions of an entry but for its method: 's=5 f=0.1'."""
  pairs = [part.strip().split('=', 1) for part in entry.where.split(',')]
  return ' '.join(
    LETTERS.get(name.strip(), '') + value.strip()
    for name, value in pairs
    if name.strip() != 'algorithm'
  )


def hours(minutes: float) -> str:
  """Return '12 min' or '2.4 h'."""
  return f'{minutes:.0f} min' if minutes < 99.5 else f'{minutes / 60:.1f} h'
