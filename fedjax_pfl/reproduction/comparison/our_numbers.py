"""Our number for every cell of a table, from the results."""

from collections.abc import Sequence
from typing import Any

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
from fedjax_pfl.reproduction.execution.evaluate_again import OF_SERVER
from fedjax_pfl.reproduction.execution.execute import find
from fedjax_pfl.reproduction.planning.data_fingerprints import DataOf
from fedjax_pfl.reproduction.planning.plan import evaluation_of, settings_of
from fedjax_pfl.reproduction.results.results import Found, Results


def compare_all(
  cells: Sequence[Cell],
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
) -> list[Comparison]:
  """Return every cell with our number, over the seeds that were run.

  A cell whose images are not on this machine counts as not run.
  """
  return [
    compare(cell, ours_of(cell, seeds, results, data_of)) for cell in cells
  ]


def ours_of(
  cell: Cell, seeds: Sequence[int], results: Results, data_of: DataOf
) -> OurNumber | None:
  """Return our number for a cell; None where no seed was run."""
  data = settings_of(cell.settings, cell.init_from, seed=0).data
  if not is_available(data.dataset, data.data_dir):
    return None
  summaries = {}
  for seed in seeds:
    evaluation = evaluation_of(cell, seed, data_of)
    found = find(results, evaluation, cell.reading)
    if found is not None:
      summaries[seed] = number_of(found, cell.reading)
  if not summaries:
    return None
  means, stds, sizes = zip(*summaries.values(), strict=True)
  return over_seeds(means, stds, sizes[0], tuple(summaries))


def number_of(
  found: Found, reading: Reading
) -> tuple[float, float | None, int]:
  """Return mean, deviation over clients, and the number of clients."""
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
  return _of_server(numbers, reading.measure), None, 1


def _of_server(numbers: dict[str, Any], measure: str) -> float:
  if measure == 'global_last10':
    return numbers['last10']['mean']
  return numbers[{'global': 'accuracy', 'global_top5': 'top5'}[measure]]
