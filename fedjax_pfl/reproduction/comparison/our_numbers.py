"""Our number for every cell of a table, from the results."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import is_available
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.reproduction.cells import Cell, Reading
from fedjax_pfl.reproduction.comparison.compare import (
  Comparison,
  OurNumber,
  compare,
  over_seeds,
)
from fedjax_pfl.reproduction.execution.evaluate_again import (
  OF_SERVER,
  stored_name,
)
from fedjax_pfl.reproduction.execution.execute import find
from fedjax_pfl.reproduction.planning.plan import (
  Evaluation,
  Training,
  evaluation_of,
)
from fedjax_pfl.reproduction.results.results import Found, Results
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.data_fields import DataSettings
from fedjax_pfl.training import keys
from fedjax_pfl.training.build_data import DataOf

# Rows of summary.csv by key and view.
Rows = Mapping[tuple[str, str], Mapping[str, str]]
NO_ROWS: Rows = {}
Division = tuple[DataSettings, bool, int]


class Number(NamedTuple):
  """Our number for one seed of a cell."""

  mean: float
  std: float | None  # over clients; None: one number of the server
  size: int  # clients or, without a std, test images; 0: unknown
  is_kept: bool = False  # whether only its row in summary.csv is left


class Seeds(NamedTuple):
  """What became of the seeds of a cell."""

  numbers: dict[int, Number]
  diverged: tuple[int, ...] = ()


def compare_all(
  cells: Sequence[Cell],
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  diverged_fn: Callable[[Training], object] = lambda training: False,
  rows: Rows = NO_ROWS,
) -> list[Comparison]:
  """Return every cell with our number, over the seeds that were run.

  Images that are not on this machine count as those of the runs in the results
  with the same partition and seed. `diverged_fn` tells whether a training that
  has no result diverged. `rows` of summary.csv answer what the results lack.
  """
  compared, data_of = [], data_or_recorded(data_of, results)
  for cell in cells:
    found = find_seeds(cell, seeds, results, data_of, diverged_fn, rows)
    kept = (seed for seed, one in found.numbers.items() if one.is_kept)
    one = compare(cell, ours_of(found.numbers))
    compared.append(one._replace(diverged=found.diverged, kept=tuple(kept)))
  return compared


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
        (division_of(one.settings), one.data.partition('+')[0])
        for one in results.trainings().values()
      )
    return recorded.get(division_of(settings), '')

  return found


def division_of(settings: Settings) -> Division:
  """Return what the fingerprint of the data depends on."""
  data = dataclasses.replace(settings.data, data_dir='')
  return data, settings.system.quick, settings.seed


def find_seeds(
  cell: Cell,
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  diverged_fn: Callable[[Training], object],
  rows: Rows = NO_ROWS,
) -> Seeds:
  """Return the numbers of the seeds that were run, and those that diverged."""
  numbers, diverged = {}, []
  for seed in seeds:
    evaluation = evaluation_of(cell, seed, data_of)
    row = row_of(evaluation, cell.reading, rows)
    if found := find(results, evaluation, cell.reading):
      is_kept = row is not None and not row['run']
      numbers[seed] = Number(*number_of(found, cell.reading), is_kept)
    elif row is not None:
      numbers[seed] = Number(*number_of_row(row), is_kept=True)
    elif diverged_fn(evaluation.training):
      diverged.append(seed)
  return Seeds(numbers, tuple(diverged))


def row_of(
  evaluation: Evaluation, reading: Reading, rows: Rows
) -> Mapping[str, str] | None:
  """Return the row of summary.csv with the number of a reading, or None."""
  training = evaluation.training
  own = keys.evaluation_key(training.settings)
  view = stored_name(reading)
  if reading.measure in OF_SERVER:  # of these it has the last accuracy alone
    view = 'global' if reading.measure == 'global' else ''
  row = rows.get((keys.row_key(training.key, evaluation.key, own), view))
  return row if row and row['mean'] else None


def number_of_row(
  row: Mapping[str, str],
) -> tuple[float, float | None, int]:
  """Return mean, deviation and size, as `number_of`, of a row."""
  mean, std, size = float(row['mean']), row['std'], row['num_clients']
  return (mean, float(std), int(size or 0)) if std else (mean, None, 0)


def ours_of(numbers: Mapping[int, Number]) -> OurNumber | None:
  """Return our number from those of seeds; None where there are none."""
  if not numbers:
    return None
  means, stds, sizes, _ = zip(*numbers.values(), strict=True)
  return over_seeds(means, stds, sizes[0], tuple(numbers))


def number_of(
  found: Found, reading: Reading
) -> tuple[float, float | None, int]:
  """Return mean, deviation over clients, and their number.

  Of the server's model: mean, None, and the number of test images.
  """
  if reading.measure not in OF_SERVER:
    summary = summarise(found.scores, found.train_count)
    return summary['mean'], summary['std'], summary['num_clients']
  numbers = found.result.get('global')
  if not numbers:
    raise bad_input(
      'eval_global_model',
      got=f'{found.training.path} without numbers of a global model',
      expected='a run with eval_global_model=True',
      cause='a cell of configs/tables whose config does not evaluate it',
    )
  return _of_server(numbers, reading.measure), None, numbers.get('count', 0)


def _of_server(numbers: dict[str, Any], measure: str) -> float:
  if measure == 'global_last10':
    return numbers['last10']['mean']
  return numbers[{'global': 'accuracy', 'global_top5': 'top5'}[measure]]
