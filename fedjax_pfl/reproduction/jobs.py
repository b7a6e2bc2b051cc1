"""What reproduce.py does: a table that is run and printed, a figure drawn."""

from collections.abc import Sequence

from configs.tables.common import load_configs
from fedjax_pfl.analysis.analyse import answer
from fedjax_pfl.analysis.answer import Options
from experiments.draw_partition import count_classes
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report import partition_figure
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction import dry_run, outcome
from fedjax_pfl.reproduction.cells import Figure, Table
from fedjax_pfl.reproduction.planning.plan import Identity, plan, training_of
from fedjax_pfl.reproduction.output.run_summary import summary_rows, write_csv
from fedjax_pfl.reproduction.output.comparison_table import as_text
from fedjax_pfl.reproduction.planning.cell_filter import where
from fedjax_pfl.reproduction.execution.execute import Workspace, do, path_of, train_missing

SUMMARY = 'summary.csv'  # every view of every run, with its command


class TableJob:
  """Some cells of a table, over some seeds."""

  def __init__(
    self, table: Table, text: str, seeds: Sequence[int], identity: Identity
  ):
    self._table, self._seeds, self._identity = table, seeds, identity
    self._cells = where(table.cells, text)
    self._evaluations = plan(self._cells, seeds, identity)  # reads the images

  def list(self, place: Workspace) -> None:
    """Say what every cell would take here."""
    dry_run.list_cells(
      self._table, self._cells, self._seeds, place, self._identity, progress.log
    )

  def run(self, place: Workspace) -> None:
    """Run what the cells lack; write and print the table."""
    do(
      self._evaluations, place, progress.log, on_done=lambda: self._write(place)
    )
    path = self._write(place)
    progress.log(as_text(self._table, self._compare(self._cells, place)))
    progress.log(f'All cells of the table: {path}, {path.with_suffix(".csv")}')

  def _write(self, place):
    rows = summary_rows(place.folder, load_configs())
    write_csv(place.folder / SUMMARY, rows)
    compared = self._compare(self._table.cells, place)
    return outcome.write_files(self._table, compared, place.folder)

  def _compare(self, cells, place):
    return outcome.compare_all(
      cells, self._seeds, place.results, self._identity
    )


class FigureJob:
  """A figure: its runs, and the question that draws them."""

  def __init__(
    self, figure: Figure, text: str, seeds: Sequence[int], identity: Identity
  ):
    if text or len(seeds) > 1:
      raise bad_input(
        'command line',
        got='--where' if text else '--seeds',
        expected=f'{figure.name} as a whole, of one seed',
        choices=['a table, such as fedbabu/13'],
        cause='a figure has no cells to choose from',
      )
    self._figure = figure
    # Nobody trains for the picture of a partition.
    runs = {} if figure.what == 'partition' else figure.runs
    self._trainings = {
      label: training_of(settings, None, seeds[0], identity)
      for label, settings in runs.items()
    }

  def list(self, place: Workspace) -> None:
    """Say what every run would take here."""
    costs = dry_run.DryRun(place)
    lines = [('run', 'state', 'time', 'memory')]
    for label, training in self._trainings.items():
      lines.append((label, *costs.training_line(training)))
    progress.log(align(lines))

  def run(self, place: Workspace) -> None:
    """Run what the figure shows, and draw it."""
    folder = place.folder / outcome.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f'{self._figure.name.replace("/", "_")}.png'
    if self._figure.what == 'partition':
      parts = [
        count_classes(settings, label, progress.log)
        for label, settings in self._figure.runs.items()
      ]
      path = partition_figure.save(parts, output)
    else:
      paths = []
      for training in self._trainings.values():
        train_missing([training], place, progress.log)
        paths.append(str(path_of(training, place)))
      options = Options(**self._figure.options)
      path = answer(
        self._figure.what, paths, str(output), options, {}, progress.log
      )
    progress.log(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')
