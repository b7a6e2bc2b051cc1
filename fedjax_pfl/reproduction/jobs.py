"""Reproduce a table or a figure: run what is missing, compare, write, print."""

from collections.abc import Sequence

from fedjax_pfl.analysis import partition
from fedjax_pfl.analysis.analyse import analyse
from fedjax_pfl.analysis.open_run import Options
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.reproduction import summary
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import Cell, Figure, Reading, Table, field
from fedjax_pfl.reproduction.compare import compare_all
from fedjax_pfl.reproduction.dry_run import list_costs
from fedjax_pfl.reproduction.execute import execute
from fedjax_pfl.reproduction.plan import Evaluation, evaluation_of, plan
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.tables import FOLDER, as_text, write_table
from fedjax_pfl.settings import parse_config


def reproduce_table(
  table: Table,
  where: str,
  seeds: Sequence[int],
  results: Results,
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
    configs: settings of the config files by name, for the commands in the
      summary.
    dry_run: whether the time and the memory of every cell are logged instead.
  """
  cells, names = filter_cells(table.cells, where), table.key_fields
  if dry_run:
    heads = [name.replace('_', ' ') for name in names]
    rows = [tuple(_shown(cell, name) for name in names) for cell in cells]
    wanted = [[evaluation_of(one, seed) for seed in seeds] for one in cells]
    list_costs(heads, rows, wanted, results)
    return
  summary.read_csv(results.folder / summary.SUMMARY)  # refused before a run

  def write():
    summary.write_summary(results, configs, progress.log)
    return write_table(table, results, seeds)

  execute(plan(cells, seeds), results, progress.log, on_done=write)
  path = write()
  progress.log(as_text(table, compare_all(cells, results, seeds)))
  progress.log(f'All cells of the table: {path}, {path.with_suffix(".csv")}')


def _shown(cell: Cell, name: str) -> str:
  value = field(cell.published, name)
  return '-' if value is None else str(value)


def reproduce_figure(
  figure: Figure,
  where: str,
  seeds: Sequence[int],
  results: Results,
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
  folder = results.folder / FOLDER
  output = folder / f'{figure.name.replace("/", "_")}.png'
  if figure.what == 'partition':
    if dry_run:
      progress.log(f'{figure.name}: nothing is trained.')
      return
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
      partition.partition_counts(parse_config(config), label, progress.log)
      for label, config in figure.runs.items()
    ]
    path = partition.save(parts, output)
  else:
    evaluations = [
      evaluation_of(Cell(None, config, Reading('initial')), seeds[0])
      for config in figure.runs.values()
    ]
    if dry_run:
      rows = [(label,) for label in figure.runs]
      list_costs(['run'], rows, [[one] for one in evaluations], results)
      return
    workdirs = _train(figure, evaluations, results)
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(**figure.options)
    path = analyse(figure.what, workdirs, str(output), options, progress.log)
  progress.log(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')


def _train(
  figure: Figure, evaluations: Sequence[Evaluation], results: Results
) -> list[str]:
  """Return the run directories of a figure; refuse one that diverged."""
  execute(evaluations, results, progress.log)
  for one in evaluations:
    if sentence := results.diverged(one.training):
      raise bad_input(
        'figure',
        got=f'{figure.name}, of which a run diverged',
        expected='runs whose numbers stay finite',
        cause=sentence.removesuffix('.'),
      )
  return [str(results.path_of(one.training)) for one in evaluations]
