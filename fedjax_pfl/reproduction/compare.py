"""Our number beside the published one, and whether both agree.

  difference = ours - published
  agree      = |difference| <= 2 sqrt(e_ours^2 + e_published^2)

The standard error e of a mean:
  one run          deviation over its clients (ddof 0) / sqrt(K): what another
                   sample of clients would change; seeds may add to it. Of one
                   number on n test images: sqrt(m (100 - m) / n)
  several runs     deviation over the seeds (ddof 1) / sqrt(S); of two seeds,
                   whose deviation may be small by chance, not below that of
                   their clients or images
  last ten rounds  their deviation, undivided: they are one run, not ten
  none published   0
  none of ours     agreement is unknown
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import is_available
from fedjax_pfl.evaluation.differences import MIN_SEEDS, Score
from fedjax_pfl.evaluation.summary import accuracies, summarise
from fedjax_pfl.reproduction.cells import OF_SERVER, Cell, Published, Reading
from fedjax_pfl.reproduction.plan import Evaluation, Training, evaluation_of
from fedjax_pfl.reproduction.results import Found, Results
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.data_fields import DataSettings
from fedjax_pfl.training import keys
from fedjax_pfl.training.build_data import DataOf

SEEDS_OF_FEDCONCAT = 3  # of its Table 1

# Rows of summary.csv by key and view.
Rows = Mapping[tuple[str, str], Mapping[str, str]]
NO_ROWS: Rows = {}
Division = tuple[DataSettings, bool, int]


class Ours(NamedTuple):
  """Our number for a cell, over the seeds that were run."""

  mean: float
  std: float | None  # over clients, mean of the seeds; None: no clients
  error: float | None  # standard error of the mean; None: unknown
  seeds: tuple[int, ...]


class Compared(NamedTuple):
  """A cell with our number beside the printed one."""

  cell: Cell
  ours: Ours | None  # None: not run
  difference: float | None
  tolerance: float | None  # twice the combined standard error
  agrees: bool | None  # None: not run, or our error is unknown
  diverged: tuple[int, ...] = ()  # the seeds whose training diverged
  kept: tuple[int, ...] = ()  # the seeds whose run directory is gone


def compare_all(
  cells: Sequence[Cell],
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  diverged_fn: Callable[[Training], object] = lambda training: False,
  rows: Rows = NO_ROWS,
) -> list[Compared]:
  """Return every cell with our number, over the seeds that were run.

  Images that are not on this machine count as those of the runs in the results
  with the same partition and seed. `diverged_fn` tells whether a training that
  has no result diverged. `rows` of summary.csv answer what the results lack.
  """
  compared, data_of = [], data_or_recorded(data_of, results)
  for cell in cells:
    scores, kept, diverged = {}, [], []
    for seed in seeds:
      evaluation = evaluation_of(cell, seed, data_of)
      if found := find(results, evaluation, cell.reading):
        scores[seed] = score_of(found, cell.reading)
      elif row := row_of(evaluation, cell.reading, rows):
        scores[seed] = score_of_row(row)
        kept.append(seed)
      elif diverged_fn(evaluation.training):
        diverged.append(seed)
    one = compare(cell, over_seeds(scores))
    compared.append(one._replace(diverged=tuple(diverged), kept=tuple(kept)))
  return compared


def compare(cell: Cell, ours: Ours | None) -> Compared:
  """Return the cell with our number beside the printed one."""
  if ours is None:
    return Compared(cell, None, None, None, None)
  difference = ours.mean - cell.published.mean
  if ours.error is None:
    return Compared(cell, ours, difference, None, None)
  tolerance = 2 * math.hypot(ours.error, published_error(cell.published) or 0)
  agrees = abs(difference) <= tolerance
  return Compared(cell, ours, difference, tolerance, agrees)


def over_seeds(scores: Mapping[int, Score]) -> Ours | None:
  """Return the number of a cell from those of its seeds; None of none.

  >>> over_seeds({0: Score(1, 80.0, 7.0, 100), 1: Score(1, 82.0, 9.0, 100)})
  Ours(mean=81.0, std=8.0, error=1.0, seeds=(0, 1))
  """
  if not scores:
    return None
  means = [one.mean for one in scores.values()]
  known = [one.std for one in scores.values() if one.std is not None]
  std = float(np.mean(known)) if known else None
  size = next(iter(scores.values())).size
  errors = []
  if len(means) > 1:
    errors.append(np.std(means, ddof=1) / math.sqrt(len(means)))
  if len(means) < MIN_SEEDS and size:
    squares = (
      one.mean * (100 - one.mean) if std is None else one.std**2
      for one in scores.values()
    )
    errors.append(math.sqrt(sum(squares) / size) / len(means))
  is_known = errors and (size or len(means) >= MIN_SEEDS)
  error = float(max(errors)) if is_known else None
  return Ours(float(np.mean(means)), std, error, tuple(scores))


def published_error(published: Published) -> float | None:
  """Return the standard error of a printed mean; None if none is known."""
  if published.std is None:
    return None
  if published.paper == 'fedbabu':  # over the clients of one run
    return published.std / math.sqrt(published.num_clients or 1)
  if (published.paper, published.table) == ('fedconcat', '1'):
    return published.std / math.sqrt(SEEDS_OF_FEDCONCAT)
  return published.std  # over the last ten rounds of one run


# ---- Our number of one seed --------------------------------------------------


def find(
  results: Results, evaluation: Evaluation, reading: Reading
) -> Found | None:
  """Return the results that hold the number of a reading, or None."""
  # Numbers of the server's model are stored with its view.
  is_server = reading.measure in OF_SERVER
  view = reading.view if is_server else reading.stored_name
  return results.find(evaluation.training.key, evaluation.key, view)


def score_of(found: Found, reading: Reading) -> Score:
  """Return our number; of clients with their accuracies, else of images."""
  if reading.measure not in OF_SERVER:
    summary = summarise(found.scores, found.train_count)
    size = summary['num_clients']
    clients = accuracies(found.scores, found.train_count)
    return Score(1, summary['mean'], summary['std'], size, clients)
  numbers = found.evaluation.result.get('global')
  if not numbers:
    raise bad_input(
      'eval_global_model',
      got=f'{found.evaluation.run.path} without numbers of a global model',
      expected='a run with eval_global_model=True',
      cause='a cell of configs/tables whose config does not evaluate it',
    )
  mean = _of_server(numbers, reading.measure)
  return Score(1, mean, None, numbers.get('count', 0))


def _of_server(numbers: dict[str, Any], measure: str) -> float:
  if measure == 'global_last10':
    return numbers['last10']['mean']
  return numbers[{'global': 'accuracy', 'global_top5': 'top5'}[measure]]


def row_of(
  evaluation: Evaluation, reading: Reading, rows: Rows
) -> Mapping[str, str] | None:
  """Return the row of summary.csv with the number of a reading, or None."""
  training = evaluation.training
  own = keys.evaluation_key(training.settings)
  view = reading.stored_name
  if reading.measure in OF_SERVER:  # of these it has the last accuracy alone
    view = 'global' if reading.measure == 'global' else ''
  row = rows.get((keys.row_key(training.key, evaluation.key, own), view))
  return row if row and row['mean'] else None


def score_of_row(row: Mapping[str, str]) -> Score:
  """Return our number as a row of summary.csv has it."""
  mean, std, size = float(row['mean']), row['std'], row['num_clients']
  return Score(1, mean, float(std), int(size or 0)) if std else Score(1, mean)


def data_or_recorded(data_of: DataOf, results: Results) -> DataOf:
  """Return `data_of`, which takes what was recorded for images not here.

  Without a record the fingerprint is '', which no run has.
  """
  recorded: dict[Division, str] = {}

  def found(settings: Settings) -> str:
    if is_available(settings.data.dataset, settings.data.data_dir):
      return data_of(settings)
    if not recorded:
      recorded.update(
        (division_of(one.run.settings), one.run.data)
        for one in results.evaluations()
      )
    return recorded.get(division_of(settings), '')

  return found


def division_of(settings: Settings) -> Division:
  """Return what the fingerprint of the data depends on."""
  data = dataclasses.replace(settings.data, data_dir='')
  return data, settings.system.quick, settings.seed
