"""The rows of docs/accelerators.md: every model and every method.

  models    a round, at the batch of the paper that has the model
  methods   the stages of configs/digits.py:METHOD, 8 of 20 clients in a round,
            their beginnings and their evaluation

on one device; on a mesh the rounds of all methods and of some models. Clients
side by side are those of 'auto' where memory is no limit, so that it need not
be asked.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from configs import common
from experiments.accelerators.targets import KINDS
from fedjax_pfl.algorithms import available
from fedjax_pfl.core.errors import check_known
from fedjax_pfl.core.target import KINDS as TARGETS
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.training.program import CPU_BLOCK

TABLES = ('models', 'methods')
SAME = {'resnet50_he'}  # another model begun differently: the same program
# The config of the paper that has a model, and its batch where that differs.
CONFIGS = {
  'convnet3': ('fedbabu_emnist', 50),
  'convnet4': ('fedbabu_cifar10', 50),
  'mobilenet': ('fedbabu_cifar100', 50),
  'resnet10': ('fedbabu_cifar100:fedavg', 50),
  'resnet18': ('fedbabu_cifar100', 50),
  'resnet50': ('fedbabu_cifar100', 50),
  'simple_cnn': ('fedbabu_cifar10:fedavg', 64),
  'superfed_cnn': ('fedbabu_cifar10:fedavg', 20),
  'vgg9': ('fedbabu_cifar10:fedavg', 64),
}
MESH_MODELS = ('convnet4', 'mobilenet', 'simple_cnn')
COHORT = 8  # of the methods' rounds


class Row(NamedTuple):
  """A model or a method on some devices."""

  table: str
  label: str
  devices: int

  @property
  def name(self) -> str:
    return f'{self.table}/{self.label}-{self.devices}'

  @property
  def kinds(self) -> tuple[str, ...]:
    """Return the programs of the row."""
    if self.table == 'models' or self.devices > 1:
      return ('round',)
    return ('begin', 'data', 'round', 'evaluation')


def labels_of(table: str) -> list[str]:
  """Return what the rows of a table are about."""
  if table == 'methods':
    return [*available()]
  return [model for model in MODELS if model not in SAME]


def choose(
  tables: Sequence[str], labels: Sequence[str], devices: int
) -> Iterator[Row]:
  """Yield the rows that are asked for, all without labels; the mesh last."""
  check_known(
    'tables',
    tables,
    expected='tables of accelerators',
    choices=TABLES,
    cause='a typing error',
  )
  check_known(
    'labels',
    labels,
    expected='models or methods of these tables',
    choices=[label for table in tables for label in labels_of(table)],
    cause='a typing error, or a method without its table',
  )
  for number in sorted({1, devices}):
    for table in tables:
      for label in labels_of(table):
        is_shown = number == 1 or table == 'methods' or label in MESH_MODELS
        if is_shown and (not labels or label in labels):
          yield Row(table, label, number)


def config_of(row: Row, platform: str) -> dict[str, Any]:
  """Return the config of a row."""
  if row.table == 'methods':
    config = common.load(f'digits:{row.label}')
    config.client_fraction = max(config.client_fraction, COHORT / 20)
  else:
    name, batch_size = CONFIGS[row.label]
    config = common.load(name)
    config.model, config.batch_size = row.label, batch_size
  cohort = cohort_size(config.num_clients, config.client_fraction)
  launches = TARGETS[KINDS[platform]].launches
  # As many as 'auto' evaluates.
  many = max(cohort, CPU_BLOCK)
  return {**config.to_dict(), 'clients_per_chunk': many if launches else 1}
