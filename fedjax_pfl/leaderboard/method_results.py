"""What a method did in a partition: its choice, its clients, its costs."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.report import finished_runs
from fedjax_pfl.report.finished_runs import FinishedRun
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.views import candidate_views
from fedjax_pfl.tuning.train_all import is_diverged

Paths = Sequence[str | os.PathLike]


class Tuned(NamedTuple):
  """The learning rate, and the view after personalisation, by validation."""

  rate: float
  view: str  # among the numbers of epochs, or SuPerFed's mixtures
  accuracy: float  # on validation examples, in percent
  is_edge: bool  # whether the rate is the lowest or the highest of the grid


class Costs(NamedTuple):
  """Of one training, the mean over seeds; all but time of its rounds alone."""

  gradients: float  # steps of a client, each on one batch
  bytes_up: float
  bytes_down: float
  seconds: float  # with all evaluations; the median: the first seed compiles


class Entry(NamedTuple):
  """A method in a partition; without numbers where it diverged."""

  method: str
  is_reference: bool  # of other clients: it is compared with nothing
  choice: Tuned | None
  before: np.ndarray | None = None  # [S, K] in percent; None without this view
  after: np.ndarray | None = None  # [S, K]
  costs: Costs | None = None
  fewest_tests: int = 0  # of a client that has any
  obstacle: str = ''  # why there are no numbers


def choose(runs: Mapping[float, Paths]) -> Tuned | None:
  """Return the rate and the view with the best accuracy on validation.

  `runs` has, for each rate from the lowest, a run for every tuning seed; the
  accuracy is that of the last round, the mean over clients, then over seeds. Of
  equal ones the lowest rate, then the first view. A rate with which a seed
  diverged is no candidate; None if all did.
  """
  ends = {min(runs), max(runs)} if len(runs) > 1 else ()
  candidates = []
  for rate, paths in runs.items():
    if any(map(is_diverged, paths)):
      continue
    lines = [run_dir.load_metrics(path)[-1] for path in paths]
    config = run_dir.load_config(paths[0])['config']
    for view in candidate_views(parse_config(config)):
      accuracy = np.mean([line[f'validation/{view}'] for line in lines])
      candidates.append(Tuned(rate, view, float(accuracy), rate in ends))
  return max(candidates, key=lambda one: one.accuracy, default=None)


def read_entry(
  method: str,
  choice: Tuned | None,
  paths: Paths,
  *,
  is_reference: bool,
  whole: Sequence[str],
) -> Entry:
  """Return the entry of a method from a run for every seed."""
  entry = Entry(method, is_reference, choice)
  if choice is None:
    words = 'diverged with every learning rate of the grid'
    return entry._replace(obstacle=words)
  if number := sum(map(is_diverged, paths)):
    words = f'diverged with the learning rate {choice.rate:g} in {number}'
    return entry._replace(obstacle=f'{words} of {len(paths)} seeds')
  runs = [finished_runs.read(path) for path in paths]
  first, before = runs[0].views[0], None
  if first not in candidate_views(parse_config(runs[0].config)):
    before = np.stack([run.accuracy(first) for run in runs])
  after = np.stack([run.accuracy(choice.view) for run in runs])
  counts = [run.clients.scores[choice.view].count for run in runs]
  fewest = min(int(own[own > 0].min()) for own in counts)
  numbers = {'before': before, 'after': after, 'fewest_tests': fewest}
  return entry._replace(**numbers, costs=costs_of(runs, whole))


def costs_of(runs: Sequence[FinishedRun], whole: Sequence[str]) -> Costs:
  """Return the costs; all clients take part in the stages `whole`."""
  settings = parse_config(runs[0].config)
  clients = settings.data.num_clients
  drawn = cohort_size(clients, settings.training.client_fraction)
  totals = []  # [S, 3]
  for run in runs:
    rounds, steps, up, down = (
      np.array([line[name] for line in run.metrics])
      for name in ('round', 'num_steps', 'bytes_up', 'bytes_down')
    )
    stages = [line['stage'] for line in run.metrics]
    cohort = np.where(np.isin(stages, whole), clients, drawn)
    gradients = np.sum(steps * np.diff(rounds, prepend=0) * cohort)
    totals.append((gradients, up.sum(), down.sum()))
  seconds = float(np.median([run.result['seconds'] for run in runs]))
  return Costs(*map(float, np.mean(totals, 0)), seconds)
