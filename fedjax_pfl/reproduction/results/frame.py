"""The results of many runs as one tidy table, for notebooks."""

import math
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.evaluation.summary import accuracies, other_measures
from fedjax_pfl.reproduction.results.gather import (
  Evaluated,
  Evaluation,
  Training,
  read_scores,
)
from fedjax_pfl.reproduction.results.results import RUNS, Results
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import to_config

if TYPE_CHECKING:
  import pandas

# Fields of the config that identify the cells of the published tables.
SETTING = (
  *('algorithm', 'dataset', 'model', 'partition', 'num_clients'),
  *('shards_per_client', 'dirichlet_beta', 'classes_per_client'),
  *('client_fraction', 'local_epochs', 'server_data_fraction'),
  *('unseen_clients', 'dropout_rate'),
  *('adapt_on', 'scoring', 'test_partition', 'validation_fraction', 'select'),
)
SUMMARY = (
  *('mean', 'std', 'pooled', 'worst_decile', 'top5', 'loss', 'ece', 'mce'),
  *('num_clients', 'num_left_out'),
)
MEASURES = ('loss', 'top5', 'ece', 'mce')
ORIGIN = ('data', 'version', 'commit', 'devices', 'processor', 'path')


def load_results(
  results: str | os.PathLike, *, per_client: bool = True
) -> 'pandas.DataFrame':
  """Return the results of many runs as a tidy table.

  >>> frame = pfl.load_results('results')  # doctest: +SKIP
  >>> frame.groupby(['algorithm', 'view']).accuracy.mean()  # doctest: +SKIP

  Args:
    results: the folder of results that experiments/reproduce.py writes, or any
      folder with finished runs.
    per_client: a row for every client of every view; else one for every view.

  Returns:
    A pandas.DataFrame with these columns:

    setting     algorithm, dataset, model, partition, num_clients, .., hp,
                finetune_epochs, finetune_trainable, rounds, seed
    view        'initial', 'finetuned', ..; after a colon, which tests or round:
                'initial:own' (tests of classes in the client's training data),
                ':other' (the rest), ':best_round' (by test accuracy),
                ':best_finished' (`finished` of test_best)
    per client  client, train_count, test_count, correct, accuracy, loss, top5,
                ece, mce; accuracy and top5 in percent. From accuracy on all
                are NaN for a client without training or test examples, which is
                in no mean of a view either
    per view    mean, std, pooled, worst_decile, low, high, ..: see summarise;
                and seconds, images_per_second and bytes of the training
    origin      key (of the training), evaluation (key of how it was
                evaluated), data, version, commit, devices, processor, path
  """
  import pandas

  folder, gathered = pathlib.Path(results), Results()
  gathered.scan(folder / RUNS if (folder / RUNS).is_dir() else folder)
  rows = [
    row
    for training, evaluation in gathered.evaluations()
    for row in _rows_of(training, evaluation, per_client)
  ]
  if not rows:
    raise bad_input(
      'results',
      got=str(results),
      expected='a folder with at least one finished run',
      cause='a mistyped path, or no run is finished yet',
    )
  names = ('setting', 'numbers', 'origin')
  parts = [pandas.DataFrame([row[name] for row in rows]) for name in names]
  if per_client:
    sizes = [len(row['numbers']['client']) for row in rows]
    index = np.repeat(np.arange(len(rows)), sizes)
    parts[0], parts[2] = (
      part.iloc[index].reset_index(drop=True) for part in parts[::2]
    )
    parts[1] = pandas.DataFrame(_joined([row['numbers'] for row in rows]))
  return pandas.concat(parts, axis=1)


def _rows_of(
  training: Training, evaluation: Evaluation, per_client: bool
) -> Iterator[dict[str, dict[str, Any]]]:
  """Yield setting, numbers and origin of every evaluated view."""
  setting = _setting(evaluation, training)
  origin = {
    'key': training.key,
    'evaluation': evaluation.evaluation,
    'data': evaluation.data,
    **{name: getattr(training.provenance, name) for name in ORIGIN[1:]},
  }
  costs = {} if per_client else _costs(training)
  for view in sorted(evaluation.folders):
    if per_client:
      numbers = _clients(read_scores(evaluation, view))
    else:
      numbers = {**_summary(evaluation, view), **costs}
    yield {
      'setting': {**setting, 'view': view},
      'numbers': numbers,
      'origin': origin,
    }


def _setting(evaluation: Evaluation, training: Training) -> dict[str, Any]:
  settings = to_config(evaluation.settings)
  finetune = settings.get('finetune') or {}
  hp = sorted((settings.get('hp') or {}).items())
  return {
    **{name: settings.get(name) for name in SETTING},
    'hp': ' '.join(f'{name}={value}' for name, value in hp),
    'finetune_epochs': ','.join(map(str, finetune.get('epochs') or ())),
    'finetune_trainable': finetune.get('trainable'),
    'rounds': training.rounds,
    'seed': training.settings.seed,
  }


def _clients(evaluated: Evaluated) -> dict[str, np.ndarray]:
  """Return the scores of every client, [K] each."""
  scores = evaluated.scores
  accuracy = accuracies(scores, evaluated.train_count)
  absent = np.full(len(accuracy), np.nan)
  others = {
    name: np.where(np.isnan(accuracy), np.nan, values)
    for name, values in other_measures(scores).items()
  }
  return {
    'client': evaluated.ids,
    'train_count': evaluated.train_count,
    'test_count': scores.count.astype(int),
    'correct': scores.correct,
    'accuracy': accuracy,
    **{name: others.get(name, absent) for name in MEASURES},
  }


def _summary(evaluation: Evaluation, view: str) -> dict[str, float]:
  """Return the summary of a view; NaN where there is no such number."""
  summary = evaluation.result['views'][view]
  low, high = summary.get('interval') or (None, None)
  numbers = {name: summary.get(name) for name in SUMMARY}
  return _with_nan({**numbers, 'low': low, 'high': high})


def _costs(training: Training) -> dict[str, float]:
  """Return the cost of a training: the median speed, the sums of bytes."""
  workdir, metrics = pathlib.Path(training.provenance.path), []
  if (workdir / run_dir.METRICS).is_file():  # none where no round was run
    metrics = run_dir.load_metrics(workdir)

  def total(name: str, of: Any) -> float | None:
    values = [line[name] for line in metrics if line.get(name) is not None]
    return of(values) if values else None

  return _with_nan(
    {
      'seconds': training.provenance.seconds,
      'images_per_second': total('images_per_second', np.median),
      'bytes_down': total('bytes_down', sum),
      'bytes_up': total('bytes_up', sum),
    }
  )


def _with_nan(numbers: dict[str, float | None]) -> dict[str, float]:
  """Return NaN for None, of which pandas makes a column of objects."""
  return {
    name: math.nan if value is None else value
    for name, value in numbers.items()
  }


def _joined(numbers: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
  """Return the columns of all views, one after the other."""
  joined = {
    name: np.concatenate([view[name] for view in numbers])
    for name in numbers[0]
  }
  if not (joined['correct'] % 1).any():  # means of batches are fractions
    joined['correct'] = joined['correct'].astype(int)
  return joined
