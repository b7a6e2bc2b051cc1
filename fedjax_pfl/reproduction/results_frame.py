"""The results of many runs as one tidy table, for notebooks."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import accuracies, other_measures
from fedjax_pfl.reproduction.results import StoredEvaluation, read_folder
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.settings import to_config

if TYPE_CHECKING:
  import pandas

# Fields of the config that identify the cells of the published tables.
SETTING = (
  *('algorithm', 'dataset', 'model', 'partition', 'num_clients'),
  *('shards_per_client', 'dirichlet_beta', 'classes_per_client'),
  *('client_fraction', 'local_epochs', 'server_data_fraction'),
  *('unseen_clients', 'dropout_rate', 'client_speeds', 'deadline'),
  *('adapt_on', 'scoring', 'test_partition', 'validation_fraction', 'select'),
)
SUMMARY = (
  *('mean', 'std', 'pooled', 'worst_decile', 'top5', 'loss', 'ece', 'mce'),
  *('num_clients', 'num_left_out'),
)
MEASURES = ('loss', 'top5', 'ece', 'mce')
COSTS = {'images_per_second': np.median, 'bytes_down': sum, 'bytes_up': sum}


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

  rows, numbers, known = [], {}, set()
  for one in read_folder(results).evaluations():
    setting, origin, costs = _setting(one), _origin(one), _costs(one)
    for view, scores in one.clients.scores.items():
      place = one.run.key, one.key, view
      if place in known:  # of two directories of one training, the first
        continue
      known.add(place)
      if per_client:
        numbers = _clients(one.clients, scores)
      else:
        numbers = _summary(one.result['views'].get(view, {})) | costs
      rows.append({**setting, 'view': view, **numbers, **origin})
  frame = pandas.DataFrame(rows)
  if per_client:
    frame = frame.explode([*numbers], ignore_index=True)
  frame = frame.astype(dict.fromkeys(numbers, float))  # None would be objects
  if not per_client:
    return frame
  whole = ['client', 'train_count', 'test_count']
  if not (frame.correct % 1).any():  # means of batches are fractions
    whole.append('correct')
  return frame.astype(dict.fromkeys(whole, int))


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


def _origin(one: StoredEvaluation) -> dict[str, str]:
  stored = one.run.stored
  return {
    'key': one.run.key,
    'evaluation': one.key,
    'data': one.stored['data'],
    **{name: stored.get(name) or '' for name in ('version', 'commit')},
    'devices': ', '.join(stored.get('devices') or ()),
    'processor': stored.get('processor') or '',
    'path': str(one.run.path.absolute()),
  }


def _clients(clients: Clients, scores: Scores) -> dict[str, np.ndarray]:
  """Return the scores of every client, [K] each."""
  accuracy = accuracies(scores, clients.train_count)
  others, unknown = other_measures(scores), np.full(len(accuracy), np.nan)
  return {
    'client': clients.ids,
    'train_count': clients.train_count,
    'test_count': scores.count,
    'correct': scores.correct,
    'accuracy': accuracy,
    **{
      name: np.where(np.isnan(accuracy), np.nan, others.get(name, unknown))
      for name in MEASURES
    },
  }


def _costs(one: StoredEvaluation) -> dict[str, float | None]:
  """Return what the training took and sent; None where it is not recorded."""
  path, metrics = one.run.path, []
  if (path / run_dir.METRICS).is_file():  # none where no round was run
    metrics = run_dir.load_metrics(path)
  costs = {'seconds': one.run.result.get('seconds')}
  for name, reduce in COSTS.items():
    values = [line[name] for line in metrics if line.get(name) is not None]
    costs[name] = reduce(values) if values else None
  return costs


def _summary(summary: dict[str, Any]) -> dict[str, Any]:
  low, high = summary.get('interval') or (None, None)
  numbers = {name: summary.get(name) for name in SUMMARY}
  return {**numbers, 'low': low, 'high': high}
