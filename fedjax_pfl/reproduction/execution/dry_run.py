"""What a table would cost on this machine: a line for every cell."""

from collections.abc import Callable, Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.cells import Cell, Table, field
from fedjax_pfl.reproduction.execution.forecast import (
  Forecast,
  assemble,
  evaluation_seconds,
  forecast,
  program_of,
)
from fedjax_pfl.reproduction.results.gather import is_finished
from fedjax_pfl.reproduction.planning.plan import (
  Evaluation,
  Identity,
  Training,
  evaluation_of,
)
from fedjax_pfl.reproduction.output.comparison_table import names_of
from fedjax_pfl.reproduction.execution.execute import Workspace, lacks, path_of
from fedjax_pfl.runs import checkpoint
from fedjax_pfl.settings.validate import num_rounds

DONE, SHARED = 'done', 'with a cell above'


class DryRun:
  """The costs that are known so far: every program is measured once."""

  def __init__(self, place: Workspace):
    self._place = place
    self._measured: dict[str, Forecast] = {}
    self._counted: set[str] = set()  # trainings and evaluations, by their keys
    self.seconds = 0.0

  def line(self, evaluations: Sequence[Evaluation]) -> tuple[str, str, str]:
    """Return state, time and memory of what a cell adds to those before."""
    todo = [one for one in evaluations if lacks(one, self._place.results)]
    if not todo:
      return DONE, '-', '-'
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
    state, seconds, size = self._training(training)
    self.seconds += seconds
    return (state, _time(seconds), _size(size)) if state else (DONE, '-', '-')

  def _training(self, training: Training) -> tuple[str, float, int]:
    """Return what is to be done for a training that no cell above has."""
    path = path_of(training, self._place)
    if training.key in self._counted or is_finished(path):
      return '', 0.0, 0
    self._counted.add(training.key)
    cost = self._forecast(training)
    steps = checkpoint.steps(path / 'checkpoints')
    rounds = num_rounds(training.settings)
    if not steps:
      return 'train', cost.training + cost.evaluation, cost.bytes
    left = max(0.0, 1 - steps[-1] / max(rounds, 1))
    state = f'go on from round {steps[-1]}'
    return state, left * cost.training + cost.evaluation, cost.bytes

  def _evaluation(self, evaluation: Evaluation) -> tuple[float, int]:
    """Return the cost of evaluation in another way than the run itself does."""
    pair = evaluation.training.key + evaluation.key
    names = [reading.view for reading in evaluation.readings]
    same = dict(evaluation.settings) == dict(evaluation.training.settings)
    own = set(names) <= set(evaluation.settings['views'])
    if pair in self._counted or (same and own):
      return 0.0, 0
    self._counted.add(pair)
    cost = self._forecast(evaluation.training)
    settings = {**evaluation.settings, 'views': names}
    experiment = assemble(settings, lambda text: None)
    return evaluation_seconds(experiment, cost.step), cost.bytes

  def _forecast(self, training: Training) -> Forecast:
    program = program_of(training.settings)
    if program not in self._measured:
      words = display_name(training.settings['algorithm'])
      progress.log(f'Measuring {words}: {len(self._measured) + 1}')
      settings = dict(training.settings)
      if training.start is not None:
        settings['init_from'] = training.start.name  # need not be there yet
      experiment = assemble(settings, lambda text: None)
      self._measured[program] = forecast(experiment)
    return self._measured[program]


def list_cells(
  table: Table,
  cells: Sequence[Cell],
  seeds: Sequence[int],
  place: Workspace,
  identity: Identity,
  log: Callable[[str], None],
) -> None:
  """Say for every cell what is to be done, and what it takes here."""
  dry_run = DryRun(place)
  names = names_of(table)
  lines = [(*(n.replace('_', ' ') for n in names), 'state', 'time', 'memory')]
  for cell in cells:
    values = [field(cell.published, name) for name in names]
    shown = ['-' if value is None else str(value) for value in values]
    evaluations = [evaluation_of(cell, seed, identity) for seed in seeds]
    lines.append((*shown, *dry_run.line(evaluations)))
  log(align(lines))
  log(
    f'{len(cells)} cells, {len(seeds)} seed{"s" * (len(seeds) > 1)}: '
    f'{_time(dry_run.seconds)} in all, as measured from a few steps just now.'
  )


def _size(number: int) -> str:
  return f'{number / 2**20:,.0f} MiB'


def _time(seconds: float) -> str:
  if seconds < 90:
    return f'{seconds:.0f} s'
  minutes = seconds / 60
  return f'{minutes:.0f} min' if minutes < 90 else f'{minutes / 60:.1f} h'
