"""Write what a folder of results has to show: its summary, and tables.

Both follow from the results and from rows of summary.csv whose runs are gone,
so they are the same however often they are written.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence

from fedjax_pfl.reproduction.cells import Cell, Table
from fedjax_pfl.reproduction.comparison import our_numbers
from fedjax_pfl.reproduction.comparison.compare import Comparison
from fedjax_pfl.reproduction.comparison.our_numbers import Rows
from fedjax_pfl.reproduction.execution.execute import (
  Workspace,
  diverged_of,
  find_directories,
)
from fedjax_pfl.reproduction.output import kept_rows
from fedjax_pfl.reproduction.output.comparison_table import write_files
from fedjax_pfl.reproduction.output.run_summary import summary_rows, write_csv
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import DataOf

SUMMARY = 'summary.csv'  # every view of every run, with its command


def check_summary(folder: pathlib.Path) -> None:
  """Refuse a summary that cannot be read, before anything is run."""
  kept_rows.read_csv(folder / SUMMARY)


def write_summary(
  workspace: Workspace,
  configs: Mapping[str, Settings],
  log: Callable[[str], None],
) -> Rows:
  """Return the rows of summary.csv, which is written again."""
  path = workspace.folder / SUMMARY
  old = kept_rows.read_csv(path)
  runs = find_directories(workspace.folder)
  rows = summary_rows(workspace.results, configs, runs=runs)
  rows = kept_rows.with_kept(rows, old, log)
  write_csv(path, rows)
  return kept_rows.by_identity(rows)


def compare_cells(
  cells: Sequence[Cell],
  seeds: Sequence[int],
  workspace: Workspace,
  data_of: DataOf,
  rows: Rows,
) -> list[Comparison]:
  """Return cells beside ours, over these seeds and those in the summary."""
  seeds = sorted({*seeds, *(int(row['seed']) for row in rows.values())})
  return our_numbers.compare_all(
    cells,
    seeds,
    workspace.results,
    data_of,
    lambda training: diverged_of(training, workspace),
    rows,
  )


def write_table(
  table: Table,
  seeds: Sequence[int],
  workspace: Workspace,
  data_of: DataOf,
  rows: Rows,
) -> pathlib.Path:
  """Write a table as .csv and .md; return the path of the latter."""
  compared = compare_cells(table.cells, seeds, workspace, data_of, rows)
  return write_files(table, compared, workspace.folder)
