"""What is published for the setting of a run, to stand beside its numbers.

Only where nothing is known to differ: the run's config must be that of its
method, `configs/METHOD_DATASET.py`, but for the fields that tables vary.
"""

import re
from collections.abc import Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.reproduction.cells import Published
from fedjax_pfl.reproduction.published import doubts, load
from fedjax_pfl.runs.identity import flatten

PAPERS = {
  'fedbabu': 'FedBABU',
  'fedconcat': 'FedConcat',
  'superfed': 'SuPerFed',
}
EPOCHS = 320  # in total, where a table does not say
FINETUNED = 5  # epochs, where a table does not say
MATCHED = ('dataset', 'model', 'algorithm', 'num_clients', 'shards_per_client')
MATCHED += ('client_fraction', 'local_epochs', 'partition')
# Fields that tables vary, that only evaluate, or that say where and how often.
FREE = {*MATCHED, 'total_epochs', 'rounds', 'seed', 'views', 'eval_views'}
FREE |= {
  'finetune.epochs',
  'data_dir',
  'clients_per_chunk',
  'devices',
  'conv_impl',
  'debug',
}
FREE |= {'save_clients', 'log_every', 'eval_every', 'checkpoint_every'}
FREE |= {'hp.protocol'}
# Printed for them is each client's best round by TEST accuracy.
ORACLES = ('lg_fedavg', 'local_only')
METRICS = {
  'initial': 'initial_accuracy',
  'templates_euclidean': 'initial_accuracy_without_head',
  'personal': 'personalized_accuracy',
  'adapted': 'personalized_accuracy',
}
STOPPED = re.compile(r'finetuned(?:_(\d+))?')

# (mean, std, where it is printed, sentences of what is doubtful about it)
Beside = tuple[float, float | None, str, tuple[str, ...]]


def beside(
  settings: Mapping[str, Any], rounds: int, config: Mapping[str, Any]
) -> dict[str, Beside]:
  """Return {view: what is printed} for a run of `settings` and `rounds`.

  `config` is that of its method and dataset, as its file has it.
  """
  if settings['algorithm'] in ORACLES or not _is_canonical(settings, config):
    return {}
  # Runs of earlier versions lack fields, which had the default then.
  settings = {**config, **settings}
  total = rounds * settings['local_epochs']
  rows = [row for row in load() if _matches(row, settings, total)]
  found = {}
  for view in settings['views']:
    for row in rows:
      if _is_printed(row, view, settings):
        dataset = f'{PAPERS[row.paper]}, Table {row.table}'
        found[view] = (row.mean, row.std, dataset, doubts(row))
        break
  return found


def _is_canonical(
  settings: Mapping[str, Any], config: Mapping[str, Any]
) -> bool:
  """Return whether nothing but free fields differs from the config."""
  ours = flatten(atomic_files.plain(settings))
  theirs = flatten(atomic_files.plain(config))
  for flat in (ours, theirs):
    flat.pop('hp', None)  # an empty group
  return all(
    field in FREE or (field in theirs and theirs[field] == value)
    for field, value in ours.items()
  )


def _matches(row: Published, settings: Mapping[str, Any], total: int) -> bool:
  expected = int(row.variant.get('total_epochs', EPOCHS))
  return total == expected and all(
    getattr(row, name) == settings[name] for name in MATCHED
  )


def _is_printed(row: Published, view: str, settings: Mapping[str, Any]) -> bool:
  """Return whether the row is about this view; of fine-tuning, as long."""
  variant = {
    name: value
    for name, value in row.variant.items()
    # The config has the mu of the paper; what is tuned is the config's.
    if name not in ('total_epochs', 'mu')
  }
  epochs = int(variant.pop('finetune_epochs', FINETUNED))
  if variant.pop('finetune_trainable', 'full') != 'full' or variant:
    return False
  if match := STOPPED.fullmatch(view):
    stop = match[1] or max(settings['finetune']['epochs'])
    return row.metric == 'personalized_accuracy' and int(stop) == epochs
  return row.metric == METRICS.get(view)
