"""Reproduce a table: run what is missing, compare, write, print."""

from collections.abc import Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.reproduction import summary_rows
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import Table
from fedjax_pfl.reproduction.compare import compare_all
from fedjax_pfl.reproduction.dry_run import list_costs
from fedjax_pfl.reproduction.execute import execute
from fedjax_pfl.reproduction.plan import plan
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.table_files import as_text, write_table


def reproduce_table(
  table: Table,
  where: str,
  seeds: Sequence[int],
  results: Results,
  configs: summary_rows.Configs,
  *,
  dry_run: bool = False,
) -> None:
  """Run what the cells lack; write and print the table.

  Args:
    table: all cells of the published table.
    where: which cells are run; see `filter_cells`.
    seeds: of each cell.
    results: the folder of results.
    configs: settings of the config files by name, for the commands in the
      summary.
    dry_run: whether the time and the memory of every cell are logged instead.
  """
  cells = filter_cells(table.cells, where)
  if dry_run:
    list_costs(table, cells, seeds, results)
    return
  # Refused before a run, if it cannot be read.
  summary_rows.read_csv(results.folder / summary_rows.SUMMARY)

  def write():
    summary_rows.write_summary(results, configs, progress.log)
    return write_table(table, results, seeds)

  execute(plan(cells, seeds), results, progress.log, on_done=write)
  path = write()
  progress.log(as_text(table, compare_all(cells, results, seeds)))
  progress.log(f'All cells of the table: {path}, {path.with_suffix(".csv")}')
