"""A queue as a table for a person: an entry a line, a seed a column."""

from collections.abc import Sequence

from fedjax_pfl import algorithms
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.queue.entries import Entry, Queue
from fedjax_pfl.reproduction.queue.steps import (
  BLOCKED,
  DIVERGED,
  DONE,
  OPEN,
  STARTED,
  WAITING,
  State,
  Step,
)

# The papers' letters, as in docs/.
LETTERS = {
  'shards_per_client': 's=',
  'client_fraction': 'f=',
  'local_epochs': 'tau=',
  'num_clients': 'K=',
}


def print_queue(
  queue: Queue, steps: Sequence[Step], states: Sequence[State]
) -> None:
  """Print the claims, the table, what is next and how long all takes."""
  for claim, text in queue.claims.items():
    print(f'{claim}  {text}')
  print()
  print(align(_lines(queue, steps, states)))
  print('\n'.join(summary(steps, states)))


def summary(steps: Sequence[Step], states: Sequence[State]) -> list[str]:
  """Return the lines below the table."""
  kinds = [state.kind for state in states]
  todo = (*OPEN, BLOCKED)
  left = sum(state.minutes for state in states if state.kind in todo)
  text = f'{kinds.count(DONE)} of {len(steps)} done'
  for kind in (DIVERGED, BLOCKED):
    if number := kinds.count(kind):
      text += f', {number} {kind}'
  lines = [f'{text}; {hours(left)} left by the estimates.']
  place = next_place(states)
  if place is not None:
    lines.append(f'Next: {headline(steps[place], states[place])}')
  obstacles = dict.fromkeys(
    str(state.obstacle) for state in states if state.obstacle
  )
  return [*lines, *(f'Blocked: {text}' for text in obstacles)]


def next_place(states: Sequence[State]) -> int | None:
  """Return the place of the step that is next; None if none is open."""
  places = (n for n, state in enumerate(states) if state.kind in OPEN)
  return next(places, None)


def headline(step: Step, state: State) -> str:
  """Return the line that announces a step."""
  text = f'{title(step)}, about {hours(state.minutes)}'
  return f'{text}, {words(step, state)}' if state.kind == STARTED else text


def title(step: Step) -> str:
  """Return '(a) Ditto s=5 f=0.1 tau=10, seed 0, fedbabu/13'."""
  name = f'{methods(step.entry)} {setting(step.entry)}'.strip()
  place = f'seed {step.seed}, {step.entry.table.name}'
  return f'({step.entry.claim}) {name}, {place}'


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


def words(step: Step, state: State) -> str:
  """Return the state of a step in a word or two."""
  if state.kind == STARTED:
    return f'round {state.rounds[0]}/{state.rounds[1]}'
  if state.kind == DONE and step.entry.minutes:  # else another entry trained
    return f'done {hours(state.minutes)}'
  return state.kind


def hours(minutes: float) -> str:
  """Return '12 min' or '2.4 h'."""
  return f'{minutes:.0f} min' if minutes < 99.5 else f'{minutes / 60:.1f} h'


def _lines(
  queue: Queue, steps: Sequence[Step], states: Sequence[State]
) -> list[tuple[str, ...]]:
  """Return the head of the table, and a line for every entry."""
  place = next_place(states)
  shown = {}
  for number, (step, state) in enumerate(zip(steps, states, strict=True)):
    text = words(step, state)
    if state.kind == WAITING:
      text = 'next' if number == place else '.'
    shown[step.entry.table.name, step.entry.where, step.seed] = text
  seeds = sorted({step.seed for step in steps})
  heads = ('', 'method', 'setting', 'table', 'estimate')
  lines = [heads + tuple(f'seed {seed}' for seed in seeds)]
  for entry in queue.entries:
    line = (entry.claim, methods(entry), setting(entry), entry.table.name)
    line += (hours(entry.minutes) if entry.minutes else '-',)
    where = entry.table.name, entry.where
    lines.append(line + tuple(shown.get((*where, seed), '') for seed in seeds))
  return lines
