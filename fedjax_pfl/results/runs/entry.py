"""What a method did in a partition: its choice, its clients, its costs."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.evaluation.choices import mean_of_clients
from fedjax_pfl.evaluation.measures import ACCURACY
from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.results.runs.run import INITIAL, Run, read
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.divergence import sentence_of

Paths = Sequence[AnyPath]
Fields = Mapping[str, Any]
METHOD, REFERENCE = 'method', 'reference'  # the second has other clients


class Choice(NamedTuple):
  """The settings, and the view after personalisation, that validation chose."""

  fields: Fields  # of the candidate
  view: str  # among the numbers of epochs, or SuPerFed's mixtures
  value: float  # of what is tuned by, on validation examples
  ends: tuple[str, ...]  # fields with the lowest or highest value tried


class Costs(NamedTuple):
  """Of one training; all but time of its rounds alone."""

  gradients: float  # steps of a client, each on one batch
  bytes_up: float
  bytes_down: float
  seconds: float  # with all evaluations


class Counts(NamedTuple):
  """Right answers and tests of every client, [S, K]; 0 tests: no number."""

  correct: np.ndarray
  total: np.ndarray
  others: Mapping[str, np.ndarray] = MappingProxyType({})  # measures by name

  def of(self, measure: str) -> np.ndarray:
    """Return a measure of the clients [S, K]; NaN of those without one."""
    unknown = np.full(self.total.shape, np.nan)
    known = {'accuracy': self.accuracy, **self.others}
    return known.get(measure, unknown)

  @property
  def accuracy(self) -> np.ndarray:
    """Return [S, K] in percent; NaN without tests."""
    share = 100 * self.correct / np.maximum(self.total, 1)
    return np.where(self.total > 0, share, np.nan)

  def means(self, measure: str = 'accuracy') -> np.ndarray:
    """Return the means over clients that have a number, [S]."""
    return np.array([*map(mean_of_clients, self.of(measure))])


class Entry(NamedTuple):
  """A method in a partition; without numbers where it diverged."""

  method: str
  kind: str  # METHOD or REFERENCE
  choice: Choice | None
  seeds: tuple[int, ...] = ()
  before: Counts | None = None  # None without this view
  after: Counts | None = None
  costs: tuple[Costs, ...] = ()  # one a seed
  obstacle: str = ''  # why there are no numbers
  # Of a robust server: {'left_out/recall': (a number for each seed, ..)}.
  left_out: Mapping[str, Sequence[float]] = MappingProxyType({})


def read_entry(
  method: str,
  kind: str,
  choice: Choice | None,
  seeds: Sequence[int],
  paths: Paths,
  whole: Sequence[str],
  measures: Sequence[str] = (),
) -> Entry:
  """Return the entry of a method from a run for every seed.

  With these measures beside accuracy, of a view that has them; the first one is
  what methods are compared by.
  """
  entry = Entry(method, kind, choice)
  if choice is None:
    return entry._replace(obstacle='diverged with every setting that was tried')
  if number := sum(map(bool, map(sentence_of, paths))):
    diverged = f'diverged with the chosen setting in {number} of'
    return entry._replace(obstacle=f'{diverged} {len(paths)} seeds')
  runs = [read(path) for path in paths]
  has_before = INITIAL in runs[0].views
  after = _counts(runs, choice.view, measures)
  main = after.of(next(iter(measures), 'accuracy'))
  if number := int(np.isinf(main).any(axis=1).sum()):
    infinite = 'has predictions that are not finite with the chosen setting in'
    return entry._replace(obstacle=f'{infinite} {number} of {len(paths)} seeds')
  return entry._replace(
    seeds=tuple(seeds),
    before=_counts(runs, INITIAL, measures) if has_before else None,
    after=after,
    costs=tuple(costs_of(run, whole) for run in runs),
    left_out={
      name: np.array([run.left_out.get(name) for run in runs], float).tolist()
      for name in runs[0].left_out
    },
  )


def _counts(runs: Sequence[Run], view: str, measures: Sequence[str]) -> Counts:
  """Return the counts of a view; 0 of attackers, and without training data."""
  scores = [run.clients.scores[view] for run in runs]
  has_data = np.stack([run.clients.counted for run in runs]) > 0
  total = np.where(has_data, np.stack([score.count for score in scores]), 0)
  correct = np.where(has_data, np.stack([score.correct for score in scores]), 0)
  if runs[0].measure != ACCURACY:  # no answer is right or wrong
    correct = np.zeros_like(total)
  values = [run.measured(view) for run in runs]
  others = {
    name: np.stack([named[name] for named in values])
    for name in measures
    if name != 'accuracy' and all(name in named for named in values)
  }
  return Counts(correct.astype(int), total.astype(int), others)


def costs_of(run: Run, whole: Sequence[str]) -> Costs:
  """Return the costs; all clients take part in the stages `whole`."""
  settings = parse_config(run.config)
  clients = settings.data.num_clients
  drawn = cohort_size(clients, settings.training.client_fraction)
  trained = [line for line in run.metrics if line['round']]
  rounds, steps, up, down = (
    np.array([line[name] for line in trained])
    for name in ('round', 'num_steps', 'bytes_up', 'bytes_down')
  )
  stages = [line['stage'] for line in trained]
  cohort = np.where(np.isin(stages, whole), clients, drawn)
  gradients = np.sum(steps * np.diff(rounds, prepend=0) * cohort)
  seconds = run.result['seconds']
  return Costs(*map(float, (gradients, up.sum(), down.sum(), seconds)))
