"""What a method did in a partition: its choice, its clients, its costs."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.federated.cohort import cohort_size
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
  """Of one training, the mean over seeds; of its rounds alone."""

  gradients: float  # steps of a client, each on one batch
  bytes_up: float
  bytes_down: float
  seconds: float  # the median: the first seed compiles


class Entry(NamedTuple):
  """A method in a partition; without numbers where it diverged."""

  method: str
  is_reference: bool  # of other clients: it is compared with nothing
  choice: Tuned | None
  before: np.ndarray | None  # [S, K] in percent; None without this view
  after: np.ndarray | None  # [S, K]
  costs: Costs | None
  obstacle: str = ''  # why there are no numbers


def choose(runs: Mapping[float, Paths]) -> Tuned | None:
  """Return the rate and the view with the best accuracy on validation.

  `runs` has, for each rate from the lowest, a run for every tuning seed; the
  accuracy is that of the last round, the mean over clients, then over seeds. Of
  equal ones the lowest rate, then the first view. A rate with which a seed
  diverged is no candidate; None if all did.
  """
  rates, best = [*runs], None
  for rate, paths in runs.items():
    if any(is_diverged(path) for path in paths):
      continue
    for view, accuracy in _on_validation(paths).items():
      if best is None or accuracy > best.accuracy:
        is_edge = len(rates) > 1 and rate in (rates[0], rates[-1])
        best = Tuned(rate, view, accuracy, is_edge)
  return best


def read_entry(
  method: str, choice: Tuned | None, paths: Paths, *, is_reference: bool
) -> Entry:
  """Return the entry of a method from a run for every seed."""
  diverged = [path for path in paths if is_diverged(path)]
  if choice is None or diverged:
    obstacle = 'diverged with every learning rate of the grid'
    if choice is not None:
      obstacle = (
        f'diverged with the learning rate {choice.rate:g} in '
        f'{len(diverged)} of {len(paths)} seeds'
      )
    return Entry(method, is_reference, choice, None, None, None, obstacle)
  runs = [finished_runs.read(path) for path in paths]
  first = runs[0].views[0]
  is_after = first in candidate_views(parse_config(runs[0].config))
  before = None if is_after else _accuracies(runs, first)
  after = _accuracies(runs, choice.view)
  return Entry(method, is_reference, choice, before, after, costs_of(runs))


def costs_of(runs: Sequence[FinishedRun]) -> Costs:
  """Return what a training computed, sent and took."""
  totals = np.array([_totals(run) for run in runs])  # [S, 3]
  seconds = float(np.median([run.result['seconds'] for run in runs]))
  return Costs(*map(float, totals.mean(0)), seconds)


def worst_tenth(accuracy: np.ndarray) -> float:
  """Return the mean over seeds of the lowest ceil(K/10) clients of [S, K]."""
  means = []
  for clients in accuracy:
    used = np.sort(clients[~np.isnan(clients)])
    means.append(used[: math.ceil(used.size / 10)].mean())
  return float(np.mean(means))


def seed_means(accuracy: np.ndarray) -> np.ndarray:
  """Return the mean over clients of every seed, [S]."""
  return np.nanmean(accuracy, axis=1)


def _on_validation(paths: Paths) -> dict[str, float]:
  """Return {view: accuracy in the last round}, the mean over the runs."""
  lines = [run_dir.load_metrics(path)[-1] for path in paths]
  views = candidate_views(parse_config(run_dir.load_config(paths[0])['config']))
  return {
    view: float(np.mean([line[f'validation/{view}'] for line in lines]))
    for view in views
  }


def _accuracies(runs: Sequence[FinishedRun], view: str) -> np.ndarray:
  return np.stack([run.accuracy(view) for run in runs])


def _totals(run: FinishedRun) -> tuple[float, float, float]:
  """Return gradient steps, bytes up and bytes down of all rounds."""
  settings = parse_config(run.config)
  cohort = cohort_size(
    settings.data.num_clients, settings.training.client_fraction
  )
  steps, done = 0.0, 0
  for line in run.metrics:
    steps += line['num_steps'] * cohort * (line['round'] - done)
    done = line['round']
  ways = ('bytes_up', 'bytes_down')
  return (steps, *(sum(line[way] for line in run.metrics) for way in ways))
