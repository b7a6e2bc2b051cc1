"""List the time and the memory of every cell of a table on this machine.

No images are needed: of a set that is not here, blank ones are measured, which
take as long. A run on it is found by the fingerprint that other runs recorded.
"""

from collections.abc import Mapping, Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.cells import Cell, Table, field
from fedjax_pfl.reproduction.compare import data_or_recorded
from fedjax_pfl.reproduction.execute import diverged_of, is_missing, run_path
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
from fedjax_pfl.runs.run_dir import is_finished
from fedjax_pfl.settings import replace
from fedjax_pfl.training.build_data import DataOf

DONE, SHARED, DIVERGED = 'done', 'with a cell above', 'diverged'


class DryRun:
  """The costs of the cells so far: every program is measured once."""

  def __init__(self, results: Results):
    self._results = results
    self._measured: dict[str, Forecast] = {}
    self._counted: set[str] = set()  # trainings and evaluations, by their keys
    self.seconds = 0.0

  def line(self, evaluations: Sequence[Evaluation]) -> tuple[str, str, str]:
    """Return state, time and memory that a cell adds to the cells before it."""
    todo = [one for one in evaluations if is_missing(one, self._results)]
    if not todo:
      return DONE, '-', '-'
    todo = [one for one in todo if not diverged_of(one.training, self._results)]
    if not todo:
      return DIVERGED, '-', '-'
    seconds, states, most = 0.0, [], 0
    for evaluation in todo:
      for training in evaluation.training.chain:
        state, more, size = self._training(training)
        seconds, most = seconds + more, max(most, size)
        states += [state] if state else []
      more, size = self._evaluation(evaluation)
      seconds, most = seconds + more, max(most, size)
    self.seconds += seconds
    if not seconds:
      return SHARED, '-', '-'
    state = ', '.join(dict.fromkeys(states or ['evaluate']))
    return state, _time(seconds), _size(most)

  def training_line(self, training: Training) -> tuple[str, str, str]:
    """Return state, time and memory of a training alone."""
    if diverged_of(training, self._results):
      return DIVERGED, '-', '-'
    state, seconds, size = self._training(training)
    self.seconds += seconds
    return (state, _time(seconds), _size(size)) if state else (DONE, '-', '-')

  def _training(self, training: Training) -> tuple[str, float, int]:
    """Return state, seconds and bytes of a training; 0 if already counted."""
    path = run_path(training, self._results)
    if training.key in self._counted or is_finished(path):
      return '', 0.0, 0
    self._counted.add(training.key)
    cost = self._forecast(training)
    steps = checkpoint.steps(path / 'checkpoints')
    rounds = training.settings.num_rounds
    if not steps:
      return 'train', cost.training + cost.evaluation, cost.bytes
    left = max(0.0, 1 - steps[-1] / max(rounds, 1))
    state = f'continue from round {steps[-1]}'
    return state, left * cost.training + cost.evaluation, cost.bytes

  def _evaluation(self, evaluation: Evaluation) -> tuple[float, int]:
    """Return the cost of an evaluation that is not part of the run itself."""
    pair = evaluation.training.key + evaluation.key
    names = [reading.view for reading in evaluation.readings]
    same = evaluation.settings == evaluation.training.settings
    own = set(names) <= set(evaluation.settings.evaluation.views)
    if pair in self._counted or (same and own):
      return 0.0, 0
    self._counted.add(pair)
    cost = self._forecast(evaluation.training)
    settings = replace(evaluation.settings, views=names)
    experiment = assemble(settings)
    return evaluation_seconds(experiment, cost.step), cost.bytes

  def _forecast(self, training: Training) -> Forecast:
    program = program_of(training.settings)
    if program not in self._measured:
      name = display_name(training.settings.algorithm)
      progress.log(f'Measuring {name}: {len(self._measured) + 1}')
      experiment = assemble(training.settings)
      self._measured[program] = forecast(experiment)
    return self._measured[program]


def list_cells(
  table: Table,
  cells: Sequence[Cell],
  seeds: Sequence[int],
  results: Results,
  data_of: DataOf,
) -> None:
  """Log a line for every cell: its state, time and memory."""
  dry_run, data_of = DryRun(results), data_or_recorded(data_of, results)
  names = table.key_fields
  lines = [(*(n.replace('_', ' ') for n in names), 'state', 'time', 'memory')]
  for cell in cells:
    values = [field(cell.published, name) for name in names]
    shown = ['-' if value is None else str(value) for value in values]
    evaluations = [evaluation_of(cell, seed, data_of) for seed in seeds]
    lines.append((*shown, *dry_run.line(evaluations)))
  progress.log(align(lines))
  progress.log(
    f'{len(cells)} cells, {len(seeds)} seed{"s" * (len(seeds) > 1)}: '
    f'{_time(dry_run.seconds)} in all, estimated from a few steps.'
  )


def list_runs(trainings: Mapping[str, Training], results: Results) -> None:
  """Log a line for every run of a figure: its state, time and memory."""
  dry_run = DryRun(results)
  lines = [('run', 'state', 'time', 'memory')]
  for label, training in trainings.items():
    lines.append((label, *dry_run.training_line(training)))
  progress.log(align(lines))


def _size(number: int) -> str:
  return f'{number / 2**20:,.0f} MiB'


def _time(seconds: float) -> str:
  if seconds < 90:
    return f'{seconds:.0f} s'
  minutes = seconds / 60
  return f'{minutes:.0f} min' if minutes < 90 else f'{minutes / 60:.1f} h'
