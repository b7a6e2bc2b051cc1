"""Published numbers are shown for runs of their setting alone."""

import pytest

from configs import common
from configs.tables.common import load_cells
from fedjax_pfl.reproduction.published_for_run import published_for_run

CONFIG = common.load('fedbabu_cifar10:fedbabu').to_dict()
CELL = {'shards_per_client': 5, 'local_epochs': 10, 'client_fraction': 0.1}
FINETUNE = CONFIG['finetune']


def ask(method='', rounds=32, **changes):
  config = CONFIG
  if method:
    config = common.load(f'fedbabu_cifar10:{method}').to_dict()
  stored = {'config': {**config, **CELL, **changes}}
  return published_for_run(stored, rounds, load_cells())


def test_a_run_of_tables_12_and_13_has_their_numbers():
  found = ask()
  assert found['initial'][:3] == (55.55, 9.90, 'FedBABU, Table 12')
  assert found['finetuned'][:3] == (80.99, 7.64, 'FedBABU, Table 13')
  assert '84.31' in found['finetuned'][3][0]
  assert ask('fedavg')['finetuned'][:2] == (74.29, 8.29)
  emnist = {'config': common.load('fedbabu_emnist:fedbabu').to_dict()}
  found = published_for_run(emnist, 32, load_cells())
  assert found['finetuned'][:3] == (95.96, 5.0, 'FedBABU, Table 19')


def test_a_run_of_an_earlier_version_lacks_fields():
  later = ('init_from', 'adapt_on', 'head_init')
  old = {name: value for name, value in CONFIG.items() if name not in later}
  found = published_for_run({'config': {**old, **CELL}}, 32, load_cells())
  assert found == ask()


@pytest.mark.parametrize(
  'changes',
  [
    {'tracker': 'wandb'},
    {'clients_placement': 'host'},
    {'devices': 2},
    {'eval_every': 3},
    {'seed': 7},
  ],
  ids=str,
)
def test_a_field_that_changes_no_number_hides_none(changes):
  assert ask(**changes) == ask()


@pytest.mark.parametrize(
  'changes',
  [
    {'rounds': 31},
    {'shards_per_client': 3},
    {'momentum': 0.5},
    {'quick': True},
    {'dataset': 'digits'},
    {'hp': {'trainable': 'full'}},
    {'finetune': {**FINETUNE, 'epochs': (1, 2)}},
  ],
  ids=str,
)
def test_another_setting_has_no_printed_number(changes):
  assert ask(**changes) == {}
  assert ask(rounds=20) == {}  # it was stopped


def test_a_number_is_that_of_its_variant():
  """Of Table 10, CIFAR-100 with s = 10: momentum in both."""
  config = common.load('fedbabu_cifar100:fedavg').to_dict()
  config |= {**CELL, 'shards_per_client': 10, 'momentum': 0.5}
  config['finetune'] = {**config['finetune'], 'momentum': 0.5}
  found = published_for_run({'config': config}, 32, load_cells())
  assert found['finetuned'][2] == 'FedBABU, Table 10'


def test_a_number_of_the_public_code_is_not_that_of_the_paper():
  assert ask('fedper') == ask('fedper', hp={'protocol': 'paper'}) == {}
  found = ask('fedper', hp={'protocol': 'released'})
  assert found['finetuned'][:2] == (74.92, 8.32)
  assert ask('per_fedavg')['adapted'][:2] == (47.48, 13.76)
  assert ask('lg_fedavg') == {}  # it is to begin with FedAvg's model
