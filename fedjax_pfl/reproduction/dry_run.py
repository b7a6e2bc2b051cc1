"""List the time and the memory of every cell of a table on this machine.

No images are needed: of a set that is not here, blank ones are measured, which
take as long.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl.core import progress
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.execute import is_trained, lacking, saved_round
from fedjax_pfl.reproduction.forecast import (
  Forecast,
  assemble,
  evaluation_seconds,
  forecast,
  program_of,
)
from fedjax_pfl.reproduction.plan import Evaluation, Training
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.settings import replace

COLUMNS = ('state', 'time', 'memory')


class Cost(NamedTuple):
  """What is done, and what that takes; nothing by default."""

  words: str = ''
  seconds: float = 0.0
  bytes: int = 0


class DryRun:
  """The costs of the cells so far: every program is measured once."""

  def __init__(self, results: Results):
    self._results = results
    self._measured: dict[str, Forecast] = {}
    self._counted: set[tuple[str, str]] = set()  # trainings and evaluations
    self.seconds = 0.0

  def line(self, evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    """Return state, time and memory that these add to what was listed."""
    evaluations = [one for one in evaluations if lacking(one, self._results)]
    if not evaluations:
      return 'done', '-', '-'
    evaluations = [
      one for one in evaluations if not self._results.diverged(one.training)
    ]
    if not evaluations:
      return 'diverged', '-', '-'
    costs = [
      self._training(link) for one in evaluations for link in one.training.chain
    ]
    costs += map(self._evaluation, evaluations)
    costs = [cost for cost in costs if cost.seconds]
    if not costs:
      return 'with a cell above', '-', '-'
    seconds = sum(cost.seconds for cost in costs)
    self.seconds += seconds
    words = dict.fromkeys(cost.words for cost in costs)
    if len(words) > 1:
      words.pop('evaluate', None)
    memory = max(cost.bytes for cost in costs) / 2**20
    return ', '.join(words), duration(seconds), f'{memory:,.0f} MiB'

  def _training(self, training: Training) -> Cost:
    """Return the cost of a training; nothing if it was already counted."""
    if self._is_counted(training.identity, ''):
      return Cost()
    if is_trained(training, self._results):
      return Cost()
    cost = self._forecast(training)
    saved = saved_round(training, self._results)
    words = f'continue from round {saved}' if saved else 'train'
    left = max(0.0, 1 - saved / max(training.settings.num_rounds, 1))
    return Cost(words, left * cost.training + cost.evaluation, cost.bytes)

  def _evaluation(self, evaluation: Evaluation) -> Cost:
    """Return the cost of an evaluation that is not part of the run itself."""
    training, settings = evaluation.training, evaluation.settings
    names = [reading.view for reading in evaluation.readings]
    is_own = {*names} <= {*settings.evaluation.views}
    if settings == training.settings and is_own:
      return Cost()
    if self._is_counted(training.identity, evaluation.key):
      return Cost()
    cost = self._forecast(training)
    experiment = assemble(replace(settings, views=names))
    seconds = evaluation_seconds(experiment, cost.step)
    return Cost('evaluate', seconds, cost.bytes)

  def _is_counted(self, *pair: str) -> bool:
    is_counted = pair in self._counted
    self._counted.add(pair)
    return is_counted

  def _forecast(self, training: Training) -> Forecast:
    program = program_of(training.settings)
    if program not in self._measured:
      name = display_name(training.settings.algorithm)
      progress.log(f'Measuring {name}: {len(self._measured) + 1}')
      self._measured[program] = forecast(assemble(training.settings))
    return self._measured[program]


def list_costs(
  heads: Sequence[str],
  rows: Sequence[tuple[str, ...]],
  evaluations: Sequence[Sequence[Evaluation]],
  results: Results,
) -> None:
  """Log a line for every cell: what names it, its state, time and memory."""
  dry_run, lines = DryRun(results), [(*heads, *COLUMNS)]
  for row, wanted in zip(rows, evaluations, strict=True):
    lines.append((*row, *dry_run.line(wanted)))
  progress.log(align(lines))
  seeds = len(evaluations[0])
  progress.log(
    f'{len(rows)} cells, {seeds} seed{"s" * (seeds > 1)}: '
    f'{duration(dry_run.seconds)} in all, estimated from a few steps.'
  )


def duration(seconds: float) -> str:
  """Return '80 s', '12 min' or '2.4 h'."""
  minutes = seconds / 60
  if minutes < 1.5:
    return f'{seconds:.0f} s'
  return f'{minutes:.0f} min' if minutes < 99.5 else f'{minutes / 60:.1f} h'
