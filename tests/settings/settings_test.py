"""Every setting that is wrong is told in one sentence of four parts."""

import math

import helpers
import pytest

from configs import common, digits
from fedjax_pfl.settings import (
  EVALUATION,
  FIELDS,
  RESUMABLE,
  TRAINING,
  Settings,
  changing,
  defaults,
  flat_config,
  parse_config,
  replace,
  to_config,
)


def make_settings(**changes):
  """Return good settings, changed; finetune__epochs is finetune.epochs."""
  settings = digits.get_config('fedbabu').to_dict()
  for name, value in changes.items():
    group, _, field = name.partition('__')
    if field:
      settings[group][field] = value
    else:
      settings[name] = value
  return settings


def refused(settings):
  message = helpers.refused(parse_config, settings)
  for part in (': got ', ', expected ', '. Likely cause: '):
    assert message.count(part) == 1, message
  assert message.endswith('.') and '..' not in message
  return message


# What breaks the rule of a field.
BAD = {
  'algorithm': ['fedbabo', None],
  'dataset': ['cifar-10', ['cifar10']],
  'model': ['resnet19', 'net.py'],
  'loss': ['brier', 'own.py:my loss'],
  'metrics': ['own.py:f', ('recall',)],
  'preprocessing': ['units'],
  'head_init': ['orthogonl', None],
  'head_bias': [0],
  'conv_impl': ['conv'],
  'precision': ['bfloat16'],
  'partition': ['shard'],
  'aggregation': ['uniforn'],
  'init_from': [None, 'x' * 300],
  'data_dir': ['a\0b', None],
  'seed': [-1, (0, 1)],
  'max_train_examples': [0.5],
  'num_clients': [0, 10.0, True],
  'shards_per_client': [0, 'many'],
  'dirichlet_beta': [0, -0.5, math.inf],
  'dirichlet_min_size': [0],
  'classes_per_client': [0.2],
  'class_clusters': [0],
  'class_families': [62, (10, 0)],
  'min_client_size': [0],
  'max_client_size': [1],
  'group_size': [0],
  'size_step': [-50],
  'test_partition': ['hole'],
  'test_shards_per_client': [0],
  'test_fraction': [20, 1, 0],
  'validation_fraction': [1, -0.1, 10],
  'unseen_clients': [-1, 0.2],
  'dropout_rate': [1.0, -0.1, 10],
  'client_fraction': [0, -0.1, 1.01, 10, math.nan],
  'total_epochs': [0],
  'local_epochs': [0.5],
  'rounds': [-1, 0],
  'batch_size': [None],
  'learning_rate': [0, math.inf, '0.1'],
  'lr_milestones': [0.5, (160, 240)],
  'lr_decay': [0, 1.005],
  'momentum': [1.0],
  'weight_decay': [-1e-4],
  'server_data_fraction': [-0.05, 5],
  'server_trainable': ['head'],
  'finetune.epochs': [5, (0, 5), ()],
  'finetune.trainable': ['conv1++bn1', ('conv1', 'bn1')],
  'finetune.learning_rate': [-1],
  'finetune.momentum': [1],
  'finetune.batch_size': [0],
  'adapt_on': ['test_halves', 0.5],
  'views': ['initial', (1,)],
  'eval_views': ['initial'],
  'scoring': ['batch'],
  'select': ['test_best'],
  'eval_global_model': [10_000],
  'eval_every': [-1],
  'checkpoint_every': [0.5],
  'log_every': [None],
  'save_clients': [0, (-1,)],
  'clients_per_chunk': [0, 'all'],
  'devices': [-1],
  'clients_placement': ['gpu'],
  'on_divergence': ['ignore'],
  'tracker': ['tensorboard', 'wandb.ai'],
  'debug': [1],
  'quick': ['yes'],
  'hp': [None],
}


@pytest.mark.parametrize('name', FIELDS)
def test_a_bad_setting_is_a_sentence(name):
  rule = FIELDS[name].rule
  for value in BAD[name]:
    message = refused(make_settings(**{name.replace('.', '__'): value}))
    assert message.startswith(f'{name}: got ')
    assert f', expected {rule.expected}. ' in message
    if rule.choices:
      assert f'Choices: {", ".join(map(str, rule.choices))}' in message


# changes, the field that the sentence is about, and words of it
TOGETHER = [
  ({'model': 'resnet19'}, 'model', 'did you mean resnet18?'),
  ({'seed': 2**32}, 'seed', 'up to 4294967295'),
  ({'local_epochs': 2**31}, 'local_epochs', 'up to 2147483647'),
  ({'learning_rate': 1e39}, 'learning_rate', 'what 32 bits hold'),
  ({'learning_rate': 10**400}, 'learning_rate', 'a digit too many'),
  ({'finetune__epochs': (5, 2**31)}, 'finetune.epochs', '2147483647'),
  ({'finetune__epochs': (5, 100_001)}, 'finetune.epochs', 'at most 100000'),
  ({'local_epochs': 81}, 'local_epochs', 'at most total_epochs, 80'),
  (
    {'rounds': 1, 'local_epochs': 100_001},
    'local_epochs',
    'got 100001, expected at most 100000',
  ),
  ({'total_epochs': 10**7}, 'rounds', 'got 2000000, expected at most 1000000'),
  ({'rounds': 1_000_001}, 'rounds', 'expected at most 1000000'),
  ({'rounds': 0}, 'rounds', 'rounds=0 with init_from=RUN'),
  ({'views': ()}, 'views', 'eval_views was meant'),
  ({'save_clients': (0, 20)}, 'save_clients', 'ids of clients, 0 to 19'),
  (
    {'unseen_clients': 3, 'save_clients': (17,)},
    'save_clients',
    'ids of clients, 0 to 16. Likely cause: fewer clients than before, or one',
  ),
  (
    {'num_clients': 10, 'unseen_clients': 10, 'save_clients': ()},
    'unseen_clients',
    "got '10 of 10 clients', expected at most 9",
  ),
  (
    {'unseen_clients': 2, 'server_data_fraction': 0.1},
    'server_data_fraction',
    'expected 0 with unseen_clients: the server would train on examples',
  ),
  (
    {'test_partition': 'split', 'server_data_fraction': 0.1},
    'server_data_fraction',
    'got 0.1, expected 0 with test_partition=split',
  ),
  (
    {'validation_fraction': 0.1, 'server_data_fraction': 0.1},
    'server_data_fraction',
    'got 0.1, expected 0 with validation_fraction',
  ),
  (
    {'select': 'validation'},
    'select',
    "got 'validation', expected last without validation_fraction",
  ),
  (
    {'debug': True, 'clients_placement': 'host'},
    'clients_placement',
    'device with debug=True',
  ),
  ({'shard_per_client': 5}, 'config', '(did you mean shards_per_client?)'),
  ({'finetune': 5}, 'config', 'finetune.trainable'),
]


@pytest.mark.parametrize(('changes', 'name', 'words'), TOGETHER)
def test_settings_that_do_not_go_together(changes, name, words):
  message = refused(make_settings(**changes))
  assert message.startswith(f'{name}: got ') and words in message


def test_an_unknown_field_lists_the_fields_of_its_group():
  message = refused(make_settings(shard_per_client=5))
  for name in FIELDS:
    assert f'{name}, ' in message or f'{name} (' in message
  message = refused(make_settings(finetune__epoch=5))
  choices, _, end = message.partition('Choices: ')[2].partition(' (did')
  assert choices.split(', ') == [f for f in FIELDS if 'finetune.' in f]
  assert end.startswith(' you mean finetune.epochs?)')
  message = refused({**make_settings(), 5: 1})
  assert 'config: got 5, expected a field of a config' in message


@pytest.mark.parametrize('settings', [None, 'configs/x.py', [('seed', 0)]])
def test_what_is_no_dict_of_settings(settings):
  assert 'expected a dict of settings' in refused(settings)


def test_the_rules_are_about_the_fields_of_the_configs():
  settings = common.base().to_dict()
  finetune = settings.pop('finetune')
  fields = {*settings, *(f'finetune.{name}' for name in finetune)}
  assert fields == {*FIELDS}


@pytest.mark.parametrize(
  'good',
  [
    {},
    {'rounds': 1, 'local_epochs': 1000},  # rounds given: no division
    {'rounds': 0, 'init_from': 'runs/a'},
    {'client_fraction': 1, 'momentum': 0, 'weight_decay': 0},
    {'lr_milestones': (), 'eval_views': (), 'save_clients': []},
    {'clients_per_chunk': 3, 'shards_per_client': 1, 'num_clients': 1},
    {'finetune__epochs': [1, 5], 'hp': {'anything': 1}},
    {'select': 'validation', 'validation_fraction': 0.1},
    {'test_partition': 'split'},
    # Of the tables of the FedBABU paper: 4 and 6, 10, 11, 2, 24, 14 and 25.
    {'finetune__trainable': 'head', 'finetune__epochs': (1, 2, 3, 10, 20)},
    {'momentum': 0.99, 'finetune__momentum': 0.99},
    {'num_clients': 500, 'shards_per_client': 100, 'save_clients': (499,)},
    {'scoring': 'whole_batches', 'eval_global_model': True},
    {'server_data_fraction': 0.05, 'server_trainable': 'body'},
    {'server_data_fraction': 1, 'head_init': 'similar', 'head_bias': 'zero'},
    {'finetune__trainable': 'conv1+bn1', 'total_epochs': 640},
  ],
)
def test_the_ends_of_the_rules_are_good(good):
  parse_config(make_settings(**good))


@pytest.mark.parametrize('name', ['seed', 'hp', 'finetune', 'num_clients'])
def test_a_field_that_is_left_out_has_its_default(name):
  config = defaults()
  del config[name]
  assert parse_config(config) == Settings() == parse_config({})


def test_settings_and_configs_go_to_and_fro():
  config = make_settings(finetune__epochs=[1, 2], hp={'trainable': 'head'})
  settings = parse_config(config)
  assert settings.finetune.epochs == (1, 2)
  assert settings.hp['trainable'] == 'head'
  assert parse_config(to_config(settings)) == settings
  assert parse_config(flat_config(settings)) == settings
  assert parse_config(settings) is settings
  assert {*flat_config(settings)} == {*FIELDS}


def test_settings_cannot_be_changed_in_place():
  settings = parse_config(make_settings(hp={'trainable': 'head'}))
  for part, name in ((settings, 'seed'), (settings.data, 'num_clients')):
    with pytest.raises(AttributeError):
      setattr(part, name, 1)
  with pytest.raises(TypeError):
    settings.hp['trainable'] = 'body'


def test_replaced_settings_are_checked():
  settings = Settings()
  other = replace(settings, {'finetune.epochs': (1, 5)}, seed=1)
  assert (other.seed, other.finetune.epochs) == (1, (1, 5))
  assert settings == Settings()
  message = helpers.refused(replace, settings, {'seed': -1})
  assert message.startswith('seed: got -1')


def test_rounds_are_given_or_follow_from_epochs():
  for changes, rounds in (
    ({}, 80 // 5),
    ({'total_epochs': 84}, 16),
    ({'rounds': 3}, 3),
  ):
    assert parse_config(make_settings(**changes)).num_rounds == rounds


def test_a_field_states_what_it_changes():
  """The keys by which stored results are found follow from this."""
  neither = {*FIELDS} - {*changing(TRAINING)} - {*changing(EVALUATION)}
  assert neither == {
    *('data_dir', 'conv_impl', 'views', 'save_clients', 'checkpoint_every'),
    *('log_every', 'clients_per_chunk', 'devices', 'clients_placement'),
    *('tracker', 'debug', 'quick'),
  }
  assert {*changing(EVALUATION)} == {
    *('adapt_on', 'scoring', 'test_partition', 'test_shards_per_client'),
    *('metrics', 'select', 'test_fraction'),
    *(name for name in FIELDS if name.startswith('finetune.')),
  }
  assert RESUMABLE == ('devices', 'clients_placement', 'tracker', 'debug')
