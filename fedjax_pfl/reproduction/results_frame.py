"""The results of many runs as one tidy table, for notebooks."""

import math
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import accuracies, other_measures
from fedjax_pfl.reproduction.results import StoredEvaluation, read_folder
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


def load_results(
  results: str | os.PathLike, *, per_client: bool = True
) -> 'pandas.DataFrame':
  """Return the results of many runs as a tidy table.

  >>> frame = pfl.load_results('results')  # doctest: +SKIP
  >>> frame.groupby(['algorithm', 'view']).accuracy.mean()  # doctest: +SKIP

  Args:
    results: the folder of results that experiments/reproduce.py writes, or any
      folder of run directories, as those of experiments/main.py.
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

  rows = list(_rows(read_folder(results).evaluations(), per_client))
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


def _rows(
  evaluations: Iterable[StoredEvaluation], per_client: bool
) -> Iterator[dict[str, dict[str, Any]]]:
  """Yield setting, numbers and origin of every evaluated view."""
  for one in evaluations:
    setting, clients = _setting(one), one.clients
    costs = {} if per_client else _costs(one)
    stored = one.run.stored
    origin = {
      'key': one.run.key,
      'evaluation': one.key,
      'data': one.stored['data'],
      **{name: stored.get(name) or '' for name in ('version', 'commit')},
      'devices': ', '.join(stored.get('devices') or ()),
      'processor': stored.get('processor') or '',
      'path': str(one.run.path.absolute()),
    }
    for view, scores in clients.scores.items():
      if per_client:
        numbers = _clients(clients.ids, clients.train_count, scores)
      else:
        numbers = _summary(one.result['views'].get(view, {}), costs)
      yield {
        'setting': {**setting, 'view': view},
        'numbers': numbers,
        'origin': origin,
      }


def _setting(one: StoredEvaluation) -> dict[str, Any]:
  config = to_config(one.settings)
  hp = sorted(config['hp'].items())
  return {
    **{name: config.get(name) for name in SETTING},
    'hp': ' '.join(f'{name}={value}' for name, value in hp),
    'finetune_epochs': ','.join(map(str, one.settings.finetune.epochs)),
    'finetune_trainable': one.settings.finetune.trainable,
    'rounds': one.run.result['rounds'],
    'seed': one.run.settings.seed,
  }


def _clients(
  ids: np.ndarray, train_count: np.ndarray, scores: Scores
) -> dict[str, np.ndarray]:
  """Return the scores of every client, [K] each."""
  accuracy = accuracies(scores, train_count)
  absent = np.full(len(accuracy), np.nan)
  others = {
    name: np.where(np.isnan(accuracy), np.nan, values)
    for name, values in other_measures(scores).items()
  }
  return {
    'client': ids,
    'train_count': train_count,
    'test_count': scores.count.astype(int),
    'correct': scores.correct,
    'accuracy': accuracy,
    **{name: others.get(name, absent) for name in MEASURES},
  }


def _costs(one: StoredEvaluation) -> dict[str, float | None]:
  """Return what the training took and sent; NaN where it is not recorded."""
  path, metrics = one.run.path, []
  if (path / run_dir.METRICS).is_file():  # none where no round was run
    metrics = run_dir.load_metrics(path)

  def reduced(name, function):
    values = [line[name] for line in metrics if line.get(name) is not None]
    return function(values) if values else None

  return {
    'seconds': one.run.result.get('seconds'),
    'images_per_second': reduced('images_per_second', np.median),
    **{way: reduced(way, sum) for way in ('bytes_down', 'bytes_up')},
  }


def _summary(
  summary: dict[str, Any], costs: dict[str, float | None]
) -> dict[str, Any]:
  """Return the summary of a view, and the cost of its training."""
  low, high = summary.get('interval') or (None, None)
  numbers = {
    **{name: summary.get(name) for name in SUMMARY},
    'low': low,
    'high': high,
    **costs,
  }
  # pandas makes a column of None one of objects.
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
