"""List what every cell of a table takes on this machine; nothing is trained.

Of the training, as compare/forecast.py estimates it: later evaluations come on
top. Blank images stand in for those that are not on this machine.
"""

from collections.abc import Sequence

from experiments.reproduction import execute
from experiments.reproduction.cells import Cell, Table, field
from experiments.reproduction.plan import Evaluation, evaluation_of
from experiments.reproduction.results import Results
from fedjax_pfl.compare.forecast import forecast
from fedjax_pfl.compare.plan import Planned
from fedjax_pfl.core import progress
from fedjax_pfl.results.tables.table import align, time_in_words

COLUMNS = ('state', 'time')


def list_costs(
  table: Table, cells: Sequence[Cell], seeds: Sequence[int], results: Results
) -> None:
  """Log a line for every cell: what names it, its state, and its time.

  The time is what a cell adds to those above it.
  """
  names, counted = table.key_fields, set()
  rows, plan, saved = [], [], []
  for number, cell in enumerate(cells):
    wanted = [evaluation_of(cell, seed) for seed in seeds]
    state, missing, trainings = execute.what_is_left(wanted, results)
    new = [x for x in trainings if x.identity not in counted]
    counted |= {x.identity for x in new}
    rounds = [execute.saved_round(x, results) for x in new]
    plan += [Planned(x.settings, {'cell': number}) for x in new]
    saved += rounds
    if new:
      states = (f'continue from round {n}' if n else 'train' for n in rounds)
      state = ', '.join(dict.fromkeys(states))
    elif missing:
      state = _without_training(missing, results)
    values = (field(cell.published, name) for name in names)
    shown = ('-' if value is None else str(value) for value in values)
    rows.append((*shown, state))
  seconds = [0.0] * len(cells)
  costs = forecast(plan, progress.log)
  for (_, labels), cost, done in zip(plan, costs, saved, strict=True):
    left = 1 - done / max(cost.rounds, 1)
    seconds[labels['cell']] += cost.seconds * left
  head = (*(name.replace('_', ' ') for name in names), *COLUMNS)
  times = (time_in_words(value) if value else '-' for value in seconds)
  lines = [(*row, time) for row, time in zip(rows, times, strict=True)]
  progress.log(align([head, *lines]))
  data = sorted({planned.settings.data.dataset for planned in plan})
  progress.log(
    f'{len(cells)} cells, {len(seeds)} seed{"s" * (len(seeds) > 1)}: '
    f'{time_in_words(sum(seconds))} of training on this machine, estimated '
    f'from a timed round. Data: {", ".join(data) or "none"}.'
  )


def _without_training(missing: Sequence[Evaluation], results: Results) -> str:
  """Return what a cell lacks whose runs are there, or are of cells above."""
  are_of_runs = all(x.settings == x.training.settings for x in missing)
  trained = (execute.is_trained(x.training, results) for x in missing)
  return 'with a cell above' if are_of_runs and not any(trained) else 'evaluate'
