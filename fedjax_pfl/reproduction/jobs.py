"""Reproduce a table or a figure: run what is missing, compare, write, print."""

import pathlib
from collections.abc import Mapping, Sequence

from fedjax_pfl.analysis.analyse import analyse
from fedjax_pfl.analysis.open_run import Options
from fedjax_pfl.analysis.partition_counts import partition_counts
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report import partition_figure
from fedjax_pfl.reproduction import summary
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import Figure, Table
from fedjax_pfl.reproduction.compare import data_or_recorded
from fedjax_pfl.reproduction.comparison_table import FOLDER, as_text
from fedjax_pfl.reproduction.dry_run import list_cells, list_runs
from fedjax_pfl.reproduction.execute import (
  diverged_of,
  execute,
  run_path,
  train_missing,
)
from fedjax_pfl.reproduction.plan import Training, plan, training_of
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build_data import DataOf


def reproduce_table(
  table: Table,
  where: str,
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  configs: summary.Configs,
  *,
  dry_run: bool = False,
) -> None:
  """Run what the cells lack; write and print the table.

  Args:
    table: all cells of the published table.
    where: which cells are run; see `filter_cells`.
    seeds: of each cell.
    results: the folder of results.
    data_of: see `make_data_of`; it reads the images.
    configs: settings of the config files by name, for the commands in the
      summary.
    dry_run: whether the time and the memory of every cell are logged instead.
  """
  cells = filter_cells(table.cells, where)
  if dry_run:
    list_cells(table, cells, seeds, results, data_of)
    return
  evaluations = plan(cells, seeds, data_of)
  summary.read_csv(results.folder / summary.SUMMARY)  # refused before a run

  def write():
    rows = summary.write_summary(results, configs, progress.log)
    return rows, summary.write_table(table, seeds, results, data_of, rows)

  execute(evaluations, results, progress.log, on_done=write)
  rows, path = write()
  compared = summary.compare_cells(cells, seeds, results, data_of, rows)
  progress.log(as_text(table, compared))
  progress.log(f'All cells of the table: {path}, {path.with_suffix(".csv")}')


def reproduce_figure(
  figure: Figure,
  where: str,
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
  *,
  dry_run: bool = False,
) -> None:
  """Run what the figure shows, and draw it; or log what that takes."""
  if where or len(seeds) > 1:
    raise bad_input(
      'command line',
      got='--where' if where else '--seeds',
      expected=f'{figure.name} as a whole, of one seed',
      choices=['a table, such as fedbabu/13'],
      cause='a figure has no cells to choose from',
    )
  if dry_run:
    data_of = data_or_recorded(data_of, results)
  # The figure of a partition needs no training.
  runs = {} if figure.what == 'partition' else figure.runs
  trainings = {
    label: training_of(config, None, seeds[0], data_of)
    for label, config in runs.items()
  }
  if dry_run:
    list_runs(trainings, results)
    return
  folder = results.folder / FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  output = folder / f'{figure.name.replace("/", "_")}.png'
  if figure.what == 'partition':
    parts = [
      partition_counts(parse_config(config), label, progress.log)
      for label, config in figure.runs.items()
    ]
    path = partition_figure.save(parts, output)
  else:
    workdirs = _train(figure, trainings, results)
    options = Options(**figure.options)
    path = analyse(figure.what, workdirs, str(output), options, progress.log)
  progress.log(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')


def _train(
  figure: Figure, trainings: Mapping[str, Training], results: Results
) -> list[str]:
  """Return the run directories of a figure; refuse one that diverged."""
  for training in trainings.values():
    train_missing([training], results, progress.log)
    if sentence := diverged_of(training, results):
      raise bad_input(
        'figure',
        got=f'{figure.name}, of which a run diverged',
        expected='runs whose numbers stay finite',
        cause=sentence.removesuffix('.'),
      )
  paths: list[pathlib.Path] = [
    run_path(one, results) for one in trainings.values()
  ]
  return list(map(str, paths))
