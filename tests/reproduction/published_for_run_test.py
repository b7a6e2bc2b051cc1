"""Published numbers are shown for runs of their setting alone."""

import pytest

from configs import common
from fedjax_pfl.reproduction import published_for_run as module
from fedjax_pfl.reproduction.published import load
from fedjax_pfl.reproduction.published_for_run import (
  published_for_run,
)

CONFIG = common.load('fedbabu_cifar10:fedbabu').to_dict()
CELL = {'shards_per_client': 5, 'local_epochs': 10, 'client_fraction': 0.1}
ROUNDS = 32


def ask(config=CONFIG, rounds=ROUNDS, **changes):
  return published_for_run({**config, **CELL, **changes}, rounds, [config])


def test_a_run_of_tables_12_and_13_has_their_numbers():
  found = ask(views=('initial', 'finetuned', 'templates_cosine'))
  assert list(found) == ['initial', 'finetuned']
  assert found['initial'][:3] == (55.55, 9.90, 'FedBABU, Table 12')
  assert found['finetuned'][:3] == (80.99, 7.64, 'FedBABU, Table 13')
  assert '84.31' in found['finetuned'][3][0]
  other = ask(common.load('fedbabu_cifar10:fedavg').to_dict())
  assert other['finetuned'][:2] == (74.29, 8.29)


def test_a_run_of_an_earlier_version_lacks_fields():
  old = {
    name: value
    for name, value in CONFIG.items()
    if name not in ('init_from', 'adapt_on', 'head_init')
  }
  assert published_for_run({**old, **CELL}, ROUNDS, [CONFIG]) == ask()


@pytest.mark.parametrize(
  'changes',
  [
    {'tracker': 'wandb'},
    {'clients_placement': 'host'},
    {'devices': 2},
    {'eval_every': 3},
  ],
  ids=str,
)
def test_a_field_that_changes_no_number_hides_none(changes):
  assert ask(**changes) == ask()


def test_the_split_of_a_data_set_is_in_the_config_alone():
  config = common.load('fedbabu_emnist:fedbabu').to_dict()
  found = published_for_run(config, ROUNDS, [config])
  assert found['finetuned'][:3] == (95.96, 5.0, 'FedBABU, Table 19')


@pytest.mark.parametrize(
  'changes',
  [
    {'rounds': 31},
    {'shards_per_client': 3},
    {'momentum': 0.5},
    {'quick': True},
    {'dataset': 'digits'},
    {'hp': {'extra': 1}},
  ],
  ids=str,
)
def test_another_setting_has_no_printed_number(changes):
  assert ask(**changes) == {}


def test_fine_tuning_of_another_length_is_another_number():
  finetune = {**CONFIG['finetune'], 'epochs': (1, 5, 10)}
  views = ('finetuned_1', 'finetuned_5', 'finetuned')
  assert list(ask(finetune=finetune, views=views)) == ['finetuned_5']


def test_a_number_of_another_variant_is_not_taken(monkeypatch):
  row = next(row for row in load() if row.variant.get('momentum') == '0.0')
  same = {name: getattr(row, name) for name in module.MATCHED}
  assert same['algorithm'] == 'fedavg'
  config = {**common.load('fedbabu_cifar10:fedavg').to_dict(), **same}
  assert published_for_run(config, 320 // row.local_epochs, [config])
  monkeypatch.setattr(module, 'load', lambda: (row,))
  assert published_for_run(config, 320 // row.local_epochs, [config]) == {}


def test_a_number_of_the_public_code_is_not_that_of_the_paper():
  config = common.load('fedbabu_cifar10:fedper').to_dict()
  assert ask(config) == ask(config, hp={'protocol': 'paper'}) == {}
  found = ask(config, hp={'protocol': 'released'})
  assert found['finetuned'][:2] == (74.92, 8.32)
  config = common.load('fedbabu_cifar10:per_fedavg').to_dict()
  assert ask(config)['adapted'][:2] == (47.48, 13.76)


def test_numbers_chosen_by_test_accuracy_are_not_compared():
  assert ask(common.load('fedbabu_cifar10:lg_fedavg').to_dict()) == {}
