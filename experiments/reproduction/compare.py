"""Our number beside the published one, and whether both agree.

  difference = ours - published
  agree      = |difference| <= 2 sqrt(e_ours^2 + e_published^2)

The standard error e of a mean:
  one run          deviation over its clients (ddof 0) / sqrt(K): what another
                   sample of clients would change; seeds may add to it. Of one
                   number on n test images: sqrt(m (100 - m) / n)
  several runs     deviation over the seeds (ddof 1) / sqrt(S); of two seeds,
                   whose deviation may be small by chance, not below that of
                   their clients or images
  last ten rounds  of print: their deviation, undivided: they are one run
  none published   0
  none of ours     agreement is unknown
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.reproduction.cells import (
  OF_ALL_TESTS,
  OF_SERVER,
  Cell,
  Published,
  Reading,
)
from experiments.reproduction.plan import Evaluation, evaluation_of
from experiments.reproduction.results import Results
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.evaluation.summary import accuracies, summarise
from fedjax_pfl.results.runs.folder import Training
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.results.statistics.differences import MIN_SEEDS
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.client_scores import Clients

# Runs behind a printed deviation: the tables where it is over seeds.
SEEDS = {('fedconcat', '1'): 3, **{('pfllib', number): 3 for number in '123'}}
SEEDS |= {('flamby', 'heart'): 5, ('flamby', 'brca'): 5}
ROUNDING = 1e-4  # of equal numbers without a deviation: in percent, of float32
BEST = ':best'  # after the name of a family of views
BEST_VIEW = 'test_best_view'  # in result.json


class Score(NamedTuple):
  """The number of one method with one seed, in percent."""

  mean: float
  std: float | None = None  # over clients; None: one number of the server
  size: int = 0  # clients or, without a std, test images; 0: unknown
  clients: np.ndarray | None = None  # [K]; NaN without an accuracy
  data: str = ''  # fingerprint of the clients: equal ones share them


class Measured(NamedTuple):
  """Our number of a cell with one seed, and where it is from."""

  seed: int
  score: Score
  view: str  # that was read
  training: Training


class Ours(NamedTuple):
  """Our number for a cell, over the seeds that were run."""

  mean: float
  std: float | None  # over clients, mean of the seeds; None: no clients
  error: float | None  # standard error of the mean; None: unknown
  seeds: tuple[int, ...]


class Compared(NamedTuple):
  """A cell with our number beside the printed one."""

  cell: Cell
  ours: Ours | None  # None: not run
  difference: float | None = None
  tolerance: float | None = None  # twice the combined standard error
  agrees: bool | None = None  # None: not run, not printed, or error unknown
  measured: tuple[Measured, ...] = ()  # by seed
  diverged: tuple[int, ...] = ()  # the seeds whose training diverged


def compare_all(cells: Sequence[Cell], results: Results) -> list[Compared]:
  """Return every cell with our number, over the seeds that were run.

  Nothing but the folder of results is read: no images are needed.
  """
  return [_compare_seeds(cell, results) for cell in cells]


def _compare_seeds(cell: Cell, results: Results) -> Compared:
  measured, diverged = [], []
  for seed in sorted(results.data):
    evaluation = evaluation_of(cell, seed)
    if ours := measure(evaluation, cell.reading, results):
      measured.append(ours)
    elif results.diverged(evaluation.training):
      diverged.append(seed)
  compared = compare(cell, over_seeds({x.seed: x.score for x in measured}))
  return compared._replace(measured=tuple(measured), diverged=tuple(diverged))


def compare(cell: Cell, ours: Ours | None) -> Compared:
  if ours is None or cell.published.mean is None:
    return Compared(cell, ours)
  difference = ours.mean - cell.published.mean
  if ours.error is None:
    return Compared(cell, ours, difference)
  tolerance = 2 * math.hypot(ours.error, published_error(cell.published) or 0)
  agrees = abs(difference) <= tolerance + ROUNDING
  return Compared(cell, ours, difference, tolerance, agrees)


def over_seeds(scores: Mapping[int, Score]) -> Ours | None:
  """Return the number of a cell from those of its seeds; None of none.

  >>> over_seeds({0: Score(80.0, 7.0, 100), 1: Score(82.0, 9.0, 100)})
  Ours(mean=81.0, std=8.0, error=1.0, seeds=(0, 1))
  """
  if not scores:
    return None
  every, number = [*scores.values()], len(scores)
  means, size = [score.mean for score in every], every[0].size
  stds = [score.std for score in every if score.std is not None]
  error = None
  if number > 1 and (size or number >= MIN_SEEDS):
    error = float(np.std(means, ddof=1) / math.sqrt(number))
  if number < MIN_SEEDS and size:
    squares = [x**2 for x in stds] or [x * (100 - x) for x in means]
    error = max(error or 0.0, math.sqrt(sum(squares) / size) / number)
  std = float(np.mean(stds)) if stds else None
  return Ours(float(np.mean(means)), std, error, tuple(scores))


def published_error(published: Published) -> float | None:
  """Return the standard error of a printed mean; None if none is known."""
  if published.std is None:
    return None
  if published.paper == 'fedbabu':  # over the clients of one run
    return published.std / math.sqrt(published.num_clients or 1)
  if seeds := SEEDS.get((published.paper, published.table)):
    return published.std / math.sqrt(seeds)
  return published.std  # over the last ten rounds of one run


# ---- Our number of one seed --------------------------------------------------


def measure(
  evaluation: Evaluation, reading: Reading, results: Results
) -> Measured | None:
  """Return our number of one seed; None if it was not run, or diverged."""
  key = results.key_of(evaluation.training)
  family, is_best, _ = reading.view.partition(BEST)
  if is_best:  # of a family of views, that of its best one
    run = results.paths.get(key)  # finished or not
    is_finished = run and run_dir.is_finished(run)
    best = run_dir.load_result(run).get(BEST_VIEW, {}) if is_finished else {}
    if family not in best:
      return None
    reading = reading._replace(view=best[family]['together']['view'])
  stored = results.find(key, evaluation.key, reading.stored_name)
  if stored is None:
    return None
  training = stored.training
  score = score_of(stored.run, reading)._replace(data=training.run.data)
  return Measured(training.run.seed, score, reading.view, training)


def score_of(run: Run, reading: Reading) -> Score:
  """Return our number; of clients with their accuracies, else of images."""
  if reading.client is not None:
    numbers = by_client(run.clients, reading)
    if reading.client:
      return Score(numbers[reading.client])
    every = np.array([*numbers.values()])
    return Score(np.nanmean(every), np.nanstd(every), len(every), every)
  if reading.measure not in OF_SERVER:
    clients = run.clients
    scores, count = clients.scores[reading.stored_name], clients.train_count
    numbers, every = summarise(scores, count), accuracies(scores, count)
    if reading.measure in OF_ALL_TESTS:
      if reading.measure == 'best_pooled':
        numbers = run.result['test_best'][reading.view]['together']
      size = int(np.sum(scores.count[~np.isnan(every)]))
      return Score(numbers['pooled'], None, size)
    mean, std, size = (numbers[x] for x in ('mean', 'std', 'num_clients'))
    return Score(mean, std, size, every)
  numbers = run.result.get('global')
  if not numbers:
    raise bad_input(
      'eval_global_model',
      got=f'{run.path} without numbers of a global model',
      expected='a run with eval_global_model=True',
    )
  if reading.measure == 'global_last10':
    mean = numbers['last10']['mean']
  else:
    mean = numbers['top5' if reading.measure == 'global_top5' else 'accuracy']
  return Score(mean, None, numbers.get('count', 0))


def by_client(clients: Clients, reading: Reading) -> dict[str, float]:
  """Return the number of each client by name, of those who came later, too."""
  scores = clients.scores[reading.view]
  if reading.measure in (scores.own or {}):
    numbers = 100 * scores.own[reading.measure]
  else:
    numbers = accuracies(scores, clients.train_count)
  later = by_client(clients.unseen, reading) if clients.unseen else {}
  names = map(str, clients.labels)
  return dict(zip(names, numbers.tolist(), strict=True)) | later
