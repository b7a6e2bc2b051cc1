"""From results to our number for every cell, and the files of a table."""

import pathlib
from collections.abc import Sequence
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import is_available
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.reproduction.output import comparison_table as tables
from fedjax_pfl.reproduction.cells import Cell, Reading, Table
from fedjax_pfl.reproduction.comparison.compare import Comparison, OurNumber, compare, over_seeds
from fedjax_pfl.reproduction.execution.evaluate_again import OF_SERVER
from fedjax_pfl.reproduction.planning.plan import Identity, evaluation_of
from fedjax_pfl.reproduction.results.results import Found, Results
from fedjax_pfl.reproduction.execution.execute import find

FOLDER = 'tables'


def compare_all(
  cells: Sequence[Cell],
  seeds: Sequence[int],
  results: Results,
  identity: Identity,
) -> list[Comparison]:
  """Return every cell with our number, over those seeds that are there.

  A cell whose images are not on this machine counts as not run.
  """
  return [
    compare(cell, ours_of(cell, seeds, results, identity)) for cell in cells
  ]


def ours_of(
  cell: Cell, seeds: Sequence[int], results: Results, identity: Identity
) -> OurNumber | None:
  """Return our number for a cell; None where no seed was run."""
  if not is_available(cell.settings['dataset'], cell.settings['data_dir']):
    return None
  summaries = {}
  for seed in seeds:
    evaluation = evaluation_of(cell, seed, identity)
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
  """Return mean, deviation over clients, and how many clients there are."""
  if reading.measure not in OF_SERVER:
    summary = summarise(found.scores, found.train_count)
    return summary['mean'], summary['std'], summary['num_clients']
  numbers = found.result.get('global')
  if not numbers:
    raise bad_input(
      'eval_global_model',
      got=f'{found.training.path} without numbers of a global model',
      expected='a run with eval_global_model=True',
      cause='a file of configs/tables that reads what no config evaluates',
    )
  return _of_server(numbers, reading.measure), None, 1


def write_files(
  table: Table, compared: Sequence[Comparison], folder: pathlib.Path
) -> pathlib.Path:
  """Write the table as .csv and .md; return the path of the latter."""
  folder = folder / FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f'{table.name.replace("/", "_")}.md'
  atomic_files.write_bytes(path, tables.as_markdown(table, compared).encode())
  atomic_files.write_bytes(
    path.with_suffix('.csv'), tables.as_csv(table, compared).encode()
  )
  return path


def _of_server(numbers: dict[str, Any], measure: str) -> float:
  if measure == 'global_last10':
    return numbers['last10']['mean']
  return numbers[{'global': 'accuracy', 'global_top5': 'top5'}[measure]]
