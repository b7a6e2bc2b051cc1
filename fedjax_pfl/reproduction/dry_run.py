"""List the time and the memory of every cell of a table on this machine.

No images are needed: of a set that is not here, blank ones are measured, which
take as long.
"""

from collections.abc import Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.execute import is_trained, lacking, saved_round
from fedjax_pfl.reproduction.forecast import (
  Forecast,
  assemble,
  forecast,
  program_of,
)
from fedjax_pfl.reproduction.plan import (
  Evaluation,
  Training,
  distinct_trainings,
)
from fedjax_pfl.reproduction.results import Results

COLUMNS = ('state', 'time', 'memory')


class DryRun:
  """The costs of the cells so far: every program is measured once."""

  def __init__(self, results: Results):
    self._results = results
    self._measured: dict[str, Forecast] = {}
    self._counted: set[str] = set()  # trainings
    self.seconds = 0.0

  def line(self, evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    """Return state, time and memory that these add to what was listed."""
    results = self._results
    missing = [one for one in evaluations if lacking(one, results)]
    if not missing:
      return 'done', '-', '-'
    missing = [one for one in missing if not results.diverged(one.training)]
    if not missing:
      return 'diverged', '-', '-'
    trainings = [
      one
      for one in distinct_trainings(missing)
      if one.identity not in self._counted and not is_trained(one, results)
    ]
    if not trainings:
      is_own = all(one.settings == one.training.settings for one in missing)
      is_own &= not any(is_trained(one.training, results) for one in missing)
      return 'with a cell above' if is_own else 'evaluate', '-', '-'
    self._counted |= {one.identity for one in trainings}
    costs = [self._forecast(one) for one in trainings]
    saved = [saved_round(one, results) for one in trainings]
    seconds = sum(
      cost.seconds * (1 - rounds / max(one.settings.num_rounds, 1))
      for cost, rounds, one in zip(costs, saved, trainings, strict=True)
    )
    self.seconds += seconds
    words = [
      f'continue from round {rounds}' if rounds else 'train' for rounds in saved
    ]
    memory = max(cost.bytes for cost in costs) / 2**20
    state = ', '.join(dict.fromkeys(words))
    return state, duration(seconds), f'{memory:,.0f} MiB'

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
    f'{duration(dry_run.seconds)} of training, estimated from a few steps.'
  )


def duration(seconds: float) -> str:
  """Return '80 s', '12 min' or '2.4 h'."""
  minutes = seconds / 60
  if minutes < 1.5:
    return f'{seconds:.0f} s'
  return f'{minutes:.0f} min' if minutes < 99.5 else f'{minutes / 60:.1f} h'
