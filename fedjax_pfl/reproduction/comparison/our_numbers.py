"""Our number for every cell of a table, from the results."""

from collections.abc import Callable, Mapping, Sequence
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
from fedjax_pfl.reproduction.planning.plan import (
  Training,
  evaluation_of,
  settings_of,
)
from fedjax_pfl.reproduction.results.results import Found, Results


def compare_all(
  cells: Sequence[Cell],
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  diverged_fn: Callable[[Training], object] = lambda training: False,
) -> list[Comparison]:
  """Return every cell with our number, over the seeds that were run.

  A cell whose images are not on this machine counts as not run. `diverged_fn`
  tells whether a training that has no result diverged.
  """
  compared = []
  for cell in cells:
    found, diverged = find_seeds(cell, seeds, results, data_of, diverged_fn)
    one = compare(cell, ours_of(found, cell.reading))
    compared.append(one._replace(diverged=diverged))
  return compared


def find_seeds(
  cell: Cell,
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  diverged_fn: Callable[[Training], object],
) -> tuple[dict[int, Found], tuple[int, ...]]:
  """Return the results of the seeds that were run, and those that diverged."""
  data = settings_of(cell.settings, cell.init_from, seed=0).data
  if not is_available(data.dataset, data.data_dir):
    return {}, ()
  results_of, diverged = {}, []
  for seed in seeds:
    evaluation = evaluation_of(cell, seed, data_of)
    found = find(results, evaluation, cell.reading)
    if found is not None:
      results_of[seed] = found
    elif diverged_fn(evaluation.training):
      diverged.append(seed)
  return results_of, tuple(diverged)


def ours_of(found: Mapping[int, Found], reading: Reading) -> OurNumber | None:
  """Return our number from the results of seeds; None where there are none."""
  if not found:
    return None
  summaries = [number_of(one, reading) for one in found.values()]
  means, stds, sizes = zip(*summaries, strict=True)
  return over_seeds(means, stds, sizes[0], tuple(found))


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
