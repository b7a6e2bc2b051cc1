"""List the time and the memory of every cell of a table on this machine.

No images are needed: of a set that is not here, blank ones are measured, which
take as long.
"""

from collections.abc import Mapping, Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.cells import Cell, Table, field
from fedjax_pfl.reproduction.execute import is_trained, lacking
from fedjax_pfl.reproduction.forecast import (
  Forecast,
  assemble,
  evaluation_seconds,
  forecast,
  program_of,
)
from fedjax_pfl.reproduction.plan import Evaluation, Training, evaluation_of
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import checkpoint
from fedjax_pfl.settings import replace

Cost = tuple[str, float, int]  # what is done, seconds, bytes
NOTHING: Cost = '', 0.0, 0
COLUMNS = ('state', 'time', 'memory')


class DryRun:
  """The costs of the cells so far: every program is measured once."""

  def __init__(self, results: Results):
    self._results = results
    self._measured: dict[str, Forecast] = {}
    self._counted: set[str] = set()  # trainings and evaluations
    self.seconds = 0.0

  def line(
    self, trainings: Sequence[Training], evaluations: Sequence[Evaluation] = ()
  ) -> tuple[str, ...]:
    """Return state, time and memory that these add to what was listed."""
    evaluations = [one for one in evaluations if lacking(one, self._results)]
    wanted = [*trainings, *(one.training for one in evaluations)]
    if not wanted:
      return 'done', '-', '-'
    lost = [one for one in wanted if self._results.diverged(one)]
    if len(lost) == len(wanted):
      return 'diverged', '-', '-'
    costs = [
      self._training(link)
      for one in wanted
      if one not in lost
      for link in one.chain
    ]
    costs += [
      self._evaluation(x) for x in evaluations if x.training not in lost
    ]
    words, seconds, sizes = zip(*costs, strict=True)
    self.seconds += sum(seconds)
    if not sum(seconds):
      return 'done' if trainings else 'with a cell above', '-', '-'
    trained = dict.fromkeys(one for one in words if one not in ('', 'evaluate'))
    state = ', '.join(trained or ['evaluate'])
    return state, duration(sum(seconds)), f'{max(sizes) / 2**20:,.0f} MiB'

  def _training(self, training: Training) -> Cost:
    """Return the cost of a training; nothing if it was already counted."""
    if training.identity in self._counted:
      return NOTHING
    self._counted.add(training.identity)
    if is_trained(training, self._results):
      return NOTHING
    cost = self._forecast(training)
    path, steps = self._results.path_of(training), []
    if path is not None:
      steps = checkpoint.steps(path / 'checkpoints')
    if not steps:
      return 'train', cost.training + cost.evaluation, cost.bytes
    left = max(0.0, 1 - steps[-1] / max(training.settings.num_rounds, 1))
    state = f'continue from round {steps[-1]}'
    return state, left * cost.training + cost.evaluation, cost.bytes

  def _evaluation(self, evaluation: Evaluation) -> Cost:
    """Return the cost of an evaluation that is not part of the run itself."""
    training, settings = evaluation.training, evaluation.settings
    pair = f'{training.identity} {evaluation.key}'
    names = [reading.view for reading in evaluation.readings]
    is_own = {*names} <= {*settings.evaluation.views}
    if pair in self._counted or (settings == training.settings and is_own):
      return NOTHING
    self._counted.add(pair)
    cost = self._forecast(training)
    experiment = assemble(replace(settings, views=names))
    return 'evaluate', evaluation_seconds(experiment, cost.step), cost.bytes

  def _forecast(self, training: Training) -> Forecast:
    program = program_of(training.settings)
    if program not in self._measured:
      name = display_name(training.settings.algorithm)
      progress.log(f'Measuring {name}: {len(self._measured) + 1}')
      self._measured[program] = forecast(assemble(training.settings))
    return self._measured[program]


def list_cells(
  table: Table, cells: Sequence[Cell], seeds: Sequence[int], results: Results
) -> None:
  """Log a line for every cell: its state, time and memory."""
  dry_run, names = DryRun(results), table.key_fields
  lines = [(*(name.replace('_', ' ') for name in names), *COLUMNS)]
  for cell in cells:
    values = [field(cell.published, name) for name in names]
    shown = ['-' if value is None else str(value) for value in values]
    evaluations = [evaluation_of(cell, seed) for seed in seeds]
    lines.append((*shown, *dry_run.line([], evaluations)))
  progress.log(align(lines))
  progress.log(
    f'{len(cells)} cells, {len(seeds)} seed{"s" * (len(seeds) > 1)}: '
    f'{duration(dry_run.seconds)} in all, estimated from a few steps.'
  )


def list_runs(trainings: Mapping[str, Training], results: Results) -> None:
  """Log a line for every run of a figure: its state, time and memory."""
  dry_run = DryRun(results)
  lines = [(label, *dry_run.line([one])) for label, one in trainings.items()]
  progress.log(align([('run', *COLUMNS), *lines]))


def duration(seconds: float) -> str:
  """Return '80 s', '12 min' or '2.4 h'."""
  minutes = seconds / 60
  if minutes < 1.5:
    return f'{seconds:.0f} s'
  return f'{minutes:.0f} min' if minutes < 99.5 else f'{minutes / 60:.1f} h'
