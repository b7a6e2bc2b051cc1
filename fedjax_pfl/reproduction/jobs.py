"""Reproduce a table or a figure: run what is missing, compare, write, print."""

from collections.abc import Mapping, Sequence

from fedjax_pfl.analysis.analyse import analyse
from fedjax_pfl.analysis.answer import Options
from fedjax_pfl.analysis.partition_counts import partition_counts
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report import partition_figure
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.cells import Figure, Table
from fedjax_pfl.reproduction.execution import dry_run
from fedjax_pfl.reproduction.execution.execute import (
  Workspace,
  diverged_of,
  execute,
  run_path,
  train_missing,
)
from fedjax_pfl.reproduction.output.comparison_table import FOLDER, as_text
from fedjax_pfl.reproduction.planning.cell_filter import filter_cells
from fedjax_pfl.reproduction.planning.plan import plan, training_of
from fedjax_pfl.reproduction.write_results import (
  check_summary,
  compare_cells,
  write_summary,
  write_table,
)
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training.build_data import DataOf


class TableJob:
  """Some cells of a table, over some seeds."""

  def __init__(
    self,
    table: Table,
    where: str,
    seeds: Sequence[int],
    data_of: DataOf,
    configs: Mapping[str, Settings],
  ):
    """Plan the cells that match `where`; this reads the images.

    Args:
      table: all cells of the published table.
      where: which cells are run; see `filter_cells`.
      seeds: of each cell.
      data_of: see `make_data_of`.
      configs: settings of the config files by name, for the commands in the
        summary.
    """
    self._table, self._seeds, self._data_of = table, seeds, data_of
    self._configs = configs
    self._cells = filter_cells(table.cells, where)
    self._evaluations = plan(self._cells, seeds, data_of)

  def dry_run(self, workspace: Workspace) -> None:
    """Log the time and the memory of every cell on this machine."""
    dry_run.list_cells(
      self._table,
      self._cells,
      self._seeds,
      workspace,
      self._data_of,
      progress.log,
    )

  def run(self, workspace: Workspace) -> None:
    """Run what the cells lack; write and print the table."""
    check_summary(workspace.folder)
    execute(
      self._evaluations,
      workspace,
      progress.log,
      on_done=lambda: self._write(workspace),
    )
    path, rows = self._write(workspace)
    compared = compare_cells(
      self._cells, self._seeds, workspace, self._data_of, rows
    )
    progress.log(as_text(self._table, compared))
    progress.log(f'All cells of the table: {path}, {path.with_suffix(".csv")}')

  def _write(self, workspace):
    rows = write_summary(workspace, self._configs, progress.log)
    path = write_table(self._table, self._seeds, workspace, self._data_of, rows)
    return path, rows


class FigureJob:
  """A figure: its runs, and the analysis that draws them."""

  def __init__(
    self, figure: Figure, where: str, seeds: Sequence[int], data_of: DataOf
  ):
    if where or len(seeds) > 1:
      raise bad_input(
        'command line',
        got='--where' if where else '--seeds',
        expected=f'{figure.name} as a whole, of one seed',
        choices=['a table, such as fedbabu/13'],
        cause='a figure has no cells to choose from',
      )
    self._figure = figure
    # The figure of a partition needs no training.
    runs = {} if figure.what == 'partition' else figure.runs
    self._trainings = {
      label: training_of(config, None, seeds[0], data_of)
      for label, config in runs.items()
    }

  def dry_run(self, workspace: Workspace) -> None:
    """Log the time and the memory of every run on this machine."""
    costs = dry_run.DryRun(workspace)
    lines = [('run', 'state', 'time', 'memory')]
    for label, training in self._trainings.items():
      lines.append((label, *costs.training_line(training)))
    progress.log(align(lines))

  def run(self, workspace: Workspace) -> None:
    """Run what the figure shows, and draw it."""
    folder = workspace.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f'{self._figure.name.replace("/", "_")}.png'
    if self._figure.what == 'partition':
      parts = [
        partition_counts(parse_config(config), label, progress.log)
        for label, config in self._figure.runs.items()
      ]
      path = partition_figure.save(parts, output)
    else:
      path = self._analyse(workspace, str(output))
    progress.log(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')

  def _analyse(self, workspace, output):
    workdirs = []
    for training in self._trainings.values():
      train_missing([training], workspace, progress.log)
      if sentence := diverged_of(training, workspace):
        raise bad_input(
          'figure',
          got=f'{self._figure.name}, of which a run diverged',
          expected='runs whose numbers stay finite',
          cause=sentence.removesuffix('.'),
        )
      workdirs.append(str(run_path(training, workspace)))
    options = Options(**self._figure.options)
    return analyse(self._figure.what, workdirs, output, options, progress.log)
