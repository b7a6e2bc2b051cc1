"""The published numbers for the setting of a run.

The run's config must be one of configs/, except for fields that tables vary.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_pfl.reproduction.cells import Published
from fedjax_pfl.reproduction.published import footnotes_of, load
from fedjax_pfl.settings import FIELDS, Settings, changing, parse_config
from fedjax_pfl.settings.field import EVALUATION, TRAINING
from fedjax_pfl.training.keys import flat

PAPERS = {
  'fedbabu': 'FedBABU',
  'fedconcat': 'FedConcat',
  'superfed': 'SuPerFed',
}
EPOCHS = 320  # in total, where a table does not state them
FINETUNE_EPOCHS = 5  # where a table does not state them
MATCHED = ('dataset', 'model', 'algorithm', 'num_clients', 'shards_per_client')
MATCHED += ('client_fraction', 'local_epochs', 'partition')
# Fields that tables vary, and that do not change a published number.
FREE = {*MATCHED, 'total_epochs', 'rounds', 'seed', 'finetune.epochs'}
FREE |= {'eval_views', 'eval_every', 'hp.protocol'}
FREE |= {*FIELDS} - {*changing(TRAINING), *changing(EVALUATION), 'quick'}
# Published for these: each client's best round by TEST accuracy.
BEST_ROUND = ('lg_fedavg', 'local_only')
# Published for these: the training of the public code.
RELEASED = ('fedper', 'fedrep', 'ditto')
METRICS = {
  'initial': 'initial_accuracy',
  'templates_euclidean': 'initial_accuracy_without_head',
  'personal': 'personalized_accuracy',
  'adapted': 'personalized_accuracy',
}
FINETUNED_VIEW = re.compile(r'finetuned(?:_(\d+))?')

# (mean, std, table, footnotes)
PublishedNumber = tuple[float, float | None, str, tuple[str, ...]]


def published_for_run(
  stored: Mapping[str, Any], rounds: int, configs: Iterable[Mapping[str, Any]]
) -> dict[str, PublishedNumber]:
  """Return {view: published number} for a run with this `stored` config.

  `configs` are those of all methods; one of them must be that of the run.
  """
  same = ('algorithm', 'dataset')
  alike = (
    _numbers_of_config(stored, rounds, config)
    for config in configs
    if all(config[name] == stored.get(name) for name in same)
  )
  return next(filter(None, alike), {})


def _numbers_of_config(
  stored: Mapping[str, Any], rounds: int, config: Mapping[str, Any]
) -> dict[str, PublishedNumber]:
  if not stored.keys() <= config.keys():  # a field of another version
    return {}
  # Fields that were added after the run had the value of the config.
  settings = parse_config({**config, **stored})
  fields = flat(settings)
  if settings.algorithm in BEST_ROUND or not _is_canonical(fields, config):
    return {}
  protocol = 'released' if settings.algorithm in RELEASED else 'paper'
  if fields.get('hp.protocol', 'paper') != protocol:
    return {}
  total = rounds * settings.training.local_epochs
  rows = [row for row in load() if _matches(row, fields, total)]
  found = {}
  for view in settings.evaluation.views:
    for row in rows:
      if _has_view(row, view, settings):
        table = f'{PAPERS[row.paper]}, Table {row.table}'
        found[view] = (row.mean, row.std, table, footnotes_of(row))
        break
  return found


def _is_canonical(fields: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
  """Return whether only free fields differ from the config."""
  expected = flat(parse_config(config))
  return all(
    name in FREE or (name in expected and expected[name] == value)
    for name, value in fields.items()
  )


def _matches(row: Published, fields: Mapping[str, Any], total: int) -> bool:
  expected = int(row.variant.get('total_epochs', EPOCHS))
  # A table names the data set, a config its split, too: emnist/byclass.
  fields = {**fields, 'dataset': fields['dataset'].partition('/')[0]}
  return total == expected and all(
    getattr(row, name) == fields[name] for name in MATCHED
  )


def _has_view(row: Published, view: str, settings: Settings) -> bool:
  """Return whether the row is about this view, with as much fine-tuning."""
  variant = {
    name: value
    for name, value in row.variant.items()
    # Both are in the config, which is that of the paper.
    if name not in ('total_epochs', 'mu')
  }
  epochs = int(variant.pop('finetune_epochs', FINETUNE_EPOCHS))
  if variant.pop('finetune_trainable', 'full') != 'full' or variant:
    return False
  if match := FINETUNED_VIEW.fullmatch(view):
    stop = match[1] or max(settings.finetune.epochs)
    return row.metric == 'personalized_accuracy' and int(stop) == epochs
  return row.metric == METRICS.get(view)
