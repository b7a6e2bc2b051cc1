"""The results of many runs as one tidy table, for notebooks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_pfl.core.errors import check_installed
from fedjax_pfl.core.types import AnyPath, Scores
from fedjax_pfl.evaluation.summary import values_by_name
from fedjax_pfl.results.runs.folder import Evaluation, read_folder
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.settings import flat_config
from fedjax_pfl.training import keys

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
# Those with a column of their own.
GIVEN = {'hp', 'finetune.epochs', 'finetune.trainable', 'rounds', 'seed'}
RENAMED = {'loss': 'loss_function'}  # `loss` is measured
SUMMARY = (
  *('mean', 'std', 'pooled', 'worst_decile', 'top5', 'loss', 'ece', 'mce'),
  *('num_clients', 'num_left_out'),
)
MEASURES = ('loss', 'top5', 'ece', 'mce')
COSTS = {'images_per_second': np.median, 'bytes_down': sum, 'bytes_up': sum}


def load_results(
  results: AnyPath, *, per_client: bool = True
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
                finetune_epochs, finetune_trainable, rounds, seed; and every
                other field in which two of the runs differ
                (max_train_examples; `loss` as loss_function)
    view        'initial', 'finetuned', ..; after a colon, which tests or round:
                'initial:own' (tests of classes in the client's training data),
                ':other' (the rest), ':best_round' (by test accuracy),
                ':best_finished' (`finished` of test_best)
    per client  client, client_name (if known), train_count, test_count,
                correct, accuracy, loss, top5, ece, mce, your own metrics;
                accuracy and top5 in percent. From
                accuracy on all are NaN for a client without training or test
                examples, which is in no mean of a view either
    per view    mean, std, pooled, worst_decile, low, high, ..: see summarise;
                and seconds, images_per_second and bytes of the training
    origin      key (of the training), evaluation (key of how it was
                evaluated), data, start (key of the model to begin with),
                version, commit, devices, processor, path
  """
  check_installed('load_results', 'pandas')
  import pandas

  rows, known = [], set()
  evaluations = read_folder(results)
  pairs = zip(evaluations, _settings(evaluations), strict=True)
  for evaluation, setting in pairs:
    run = evaluation.run
    for view, scores in run.clients.scores.items():
      key = evaluation.training.key, evaluation.key, view
      if key in known:  # of two directories of one training, the first
        continue
      known.add(key)
      if per_client:
        numbers = _clients(run.clients, scores)
      else:
        summary = dict(run.result['views'].get(view, {}))
        ends = summary.pop('interval', None) or (None, None)
        numbers = dict.fromkeys(SUMMARY) | summary
        numbers |= dict(zip(('low', 'high'), ends, strict=True))
        numbers |= _costs(evaluation.training.run)
        # None would make a column one of objects.
        numbers = {
          name: np.nan if value is None else float(value)
          for name, value in numbers.items()
        }
      rows.append({**setting, 'view': view, **numbers, **_origin(evaluation)})
  if per_client:
    return pandas.concat(map(pandas.DataFrame, rows), ignore_index=True)
  return pandas.DataFrame(rows)


def _settings(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
  """Return the fields of each, with those in which any two of them differ."""
  flat = [flat_config(x.run.settings) for x in evaluations]
  others = (keys.TRAINED | keys.EVALUATED).difference(SETTING, GIVEN)
  varied = [
    name for name in sorted(others) if len({repr(x[name]) for x in flat}) > 1
  ]
  settings = []
  for evaluation, fields in zip(evaluations, flat, strict=True):
    training = evaluation.training.run
    hp = sorted(fields['hp'].items())
    setting = {name: _cell(fields[name]) for name in SETTING}
    setting['hp'] = ' '.join(f'{name}={value}' for name, value in hp)
    setting['finetune_epochs'] = ','.join(map(str, fields['finetune.epochs']))
    setting['finetune_trainable'] = fields['finetune.trainable']
    setting['rounds'] = training.result['rounds']
    setting['seed'] = training.settings.seed
    for name in varied:
      setting[RENAMED.get(name, name)] = _cell(fields[name])
    settings.append(setting)
  return settings


def _cell(value: Any) -> str | int | float:
  return value if isinstance(value, str | int | float) else str(value)


def _origin(evaluation: Evaluation) -> dict[str, str]:
  training, record = evaluation.training, evaluation.training.run.record
  return {
    'key': training.key,
    'evaluation': evaluation.key,
    'data': evaluation.run.record['data'],
    'start': training.start,
    **{name: record.get(name) or '' for name in ('version', 'commit')},
    'devices': ', '.join(record.get('devices') or ()),
    'processor': record.get('processor') or '',
    'path': str(training.run.path.absolute()),
  }


def _clients(clients: Clients, scores: Scores) -> dict[str, np.ndarray]:
  """Return the scores of every client, [K] each."""
  unknown = np.full(len(clients.ids), np.nan)
  names = 'accuracy', *MEASURES
  return {
    'client': clients.ids,
    **({} if clients.names is None else {'client_name': clients.names}),
    'train_count': clients.train_count,
    'test_count': scores.count,
    'correct': scores.correct,
    **dict.fromkeys(names, unknown),
    **values_by_name(scores, clients.counted),
  }


def _costs(run: Run) -> dict[str, float | None]:
  """Return what the training took and sent; None where it is not recorded."""
  costs = {'seconds': run.result.get('seconds')}
  for name, reduce in COSTS.items():
    _, values = run.curve(name)
    costs[name] = reduce(values) if values.size else None
  return costs
