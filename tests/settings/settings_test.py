"""Every setting that is wrong is told in one sentence of four parts."""

import helpers
import pytest

from configs import common, digits
from fedjax_pfl.settings import (
  FIELDS,
  RESUMABLE,
  Settings,
  changing,
  defaults,
  flat_config,
  parse_config,
  replace,
  to_config,
)
from fedjax_pfl.settings.field import EVALUATION, TRAINING


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


# name, value, and words that the message must hold
BAD = [
  ('algorithm', 'fedbabo', '(did you mean fedbabu?)'),
  ('algorithm', None, 'got None'),
  ('dataset', 'cifar-10', 'did you mean cifar10?'),
  ('dataset', ['cifar10'], "got ['cifar10']"),
  ('model', 'resnet19', 'did you mean resnet18?'),
  ('model', 'net.py', 'a known model, or your own as FILE.py:NAME'),
  ('loss', 'brier', 'Choices: cross_entropy'),
  ('loss', 'own.py:my loss', "got 'own.py:my loss'"),
  ('metrics', 'own.py:f', 'functions of your own as FILE.py:NAME'),
  ('metrics', ('recall',), "got ('recall',)"),
  ('preprocessing', 'units', 'did you mean unit?'),
  ('head_init', 'orthogonl', 'did you mean orthogonal?'),
  ('head_init', None, 'got None'),
  ('head_bias', 0, 'Choices: default, zero'),
  ('conv_impl', 'conv', 'Choices: auto, lax, fused, gemm'),
  ('precision', 'bfloat16', 'Choices: float32, tf32, mixed'),
  ('partition', 'shard', 'did you mean shards?'),
  ('aggregation', 'uniforn', 'did you mean uniform?'),
  ('finetune__trainable', 'conv1++bn1', "names of layers joined by '+'"),
  ('finetune__trainable', ('conv1', 'bn1'), 'write "conv1+bn1"'),
  ('init_from', None, 'the directory of a finished run as a string'),
  ('init_from', 'x' * 300, 'the directory of a finished run as a string'),
  ('data_dir', 'a\0b', 'a path as a string'),
  ('seed', -1, 'a whole number as a seed, 0 to 4294967295'),
  ('seed', 2**32, 'up to 4294967295'),
  ('seed', (0, 1), 'each seed is a run'),
  ('data_dir', None, 'a path as a string'),
  ('max_train_examples', 0.5, 'a fraction instead of a number'),
  ('num_clients', 0, 'clients, 1 or more'),
  ('num_clients', 10.0, 'a whole number of clients'),
  ('num_clients', True, 'got True'),
  ('shards_per_client', 0, 'shards for each client, 1 or more'),
  ('shards_per_client', 'many', "got 'many'"),
  ('dirichlet_beta', 0, 'a finite number above 0'),
  ('dirichlet_beta', -0.5, 'a small number such as 0.01 does that'),
  ('dirichlet_beta', float('inf'), 'got inf'),
  ('dirichlet_min_size', 0, 'of the smallest client, 1 or more'),
  ('classes_per_client', 0.2, 'classes for each client, 1 or more'),
  ('class_clusters', 0, 'clusters of classes, 1 or more'),
  ('class_families', 62, 'write (10,)'),
  ('class_families', (10, 0), 'whole numbers of classes, 1 or more'),
  ('min_client_size', 0, 'training examples of a client, 1 or more'),
  ('max_client_size', 1, 'that no client reaches, 2 or more'),
  ('group_size', 0, 'clients of one size, 1 or more'),
  ('size_step', -50, 'a number of examples, 0 or more'),
  ('test_partition', 'hole', 'did you mean whole?'),
  ('test_shards_per_client', 0, 'shards for each client, 1 or more'),
  ('test_fraction', 20, 'a percentage, or a number of examples'),
  ('test_fraction', 1, 'between 0 and 1'),
  ('validation_fraction', 1, 'from 0 to below 1'),
  ('validation_fraction', -0.1, 'from 0 to below 1'),
  ('validation_fraction', 10, 'a percentage, or a number of examples'),
  ('unseen_clients', -1, 'a whole number of clients, 0 or more'),
  ('unseen_clients', 0.2, 'a share of the clients'),
  ('dropout_rate', 1.0, 'a probability, from 0 to below 1'),
  ('dropout_rate', -0.1, 'a probability, from 0 to below 1'),
  ('dropout_rate', 10, 'a percentage'),
  ('client_fraction', 0, 'a fraction above 0 and up to 1'),
  ('client_fraction', -0.1, 'a fraction above 0 and up to 1'),
  ('client_fraction', 1.01, 'a fraction above 0 and up to 1'),
  ('client_fraction', 10, 'a percentage, or a number of clients'),
  ('client_fraction', float('nan'), 'got nan'),
  ('total_epochs', 0, 'epochs, 1 or more'),
  ('local_epochs', 0.5, 'got 0.5'),
  ('local_epochs', 81, 'expected at most total_epochs, 80'),
  ('local_epochs', 2**31, 'whole numbers up to 2147483647'),
  ('rounds', 0, 'None: total / local epochs'),
  ('rounds', 0, 'rounds=0 with init_from=RUN'),
  ('rounds', -1, 'None: total / local epochs'),
  ('rounds', 1_000_001, 'expected at most 1000000'),
  ('batch_size', None, 'examples, 1 or more'),
  ('learning_rate', 0, 'a learning rate above 0'),
  ('learning_rate', float('inf'), 'got inf'),
  ('learning_rate', '0.1', "got '0.1'"),
  ('learning_rate', 1e39, 'what 32 bits hold'),
  ('learning_rate', 10**400, 'a digit too many'),
  ('lr_milestones', 0.5, 'write (0.5,)'),
  ('lr_milestones', (160, 240), 'rounds instead of fractions'),
  ('lr_decay', 0, 'a factor above 0 and up to 1'),
  ('lr_decay', 1.005, 'what is left (0.995)'),
  ('momentum', 1.0, 'a momentum from 0 to below 1'),
  ('weight_decay', -1e-4, 'a number, 0 or more'),
  ('server_data_fraction', -0.05, 'from 0 to 1'),
  ('server_data_fraction', 5, 'a percentage, or a number of examples'),
  ('server_trainable', 'head', 'Choices: full, body'),
  ('finetune__epochs', 5, 'write (5,)'),
  ('finetune__epochs', (0, 5), 'the view "initial"'),
  ('finetune__epochs', (), 'got ()'),
  ('finetune__epochs', (5, 100_001), 'expected at most 100000'),
  ('finetune__epochs', (5, 2**31), 'whole numbers up to 2147483647'),
  ('finetune__learning_rate', -1, 'a learning rate above 0'),
  ('finetune__momentum', 1, 'a momentum from 0 to below 1'),
  ('finetune__batch_size', 0, 'examples, 1 or more'),
  ('adapt_on', 'test_halves', 'did you mean test_half?'),
  ('adapt_on', 0.5, 'Choices: train, test_half'),
  ('views', 'initial', "write ('initial',)"),
  ('views', (1,), 'names of views'),
  ('views', (), 'eval_views was meant'),
  ('eval_views', 'initial', "write ('initial',)"),
  ('scoring', 'batch', 'did you mean batches?'),
  ('select', 'test_best', 'Choices: last, validation'),
  ('eval_global_model', 10_000, 'Choices: True, False'),
  ('eval_every', -1, 'rounds (0 = sixteen times in a run), 0 or more'),
  ('checkpoint_every', 0.5, '(0 = with every evaluation)'),
  ('log_every', None, '(0 = automatic)'),
  ('save_clients', 0, 'write (0,)'),
  ('save_clients', (-1,), 'ids of clients, from 0'),
  ('save_clients', (0, 20), 'expected ids of clients, 0 to 19'),
  ('clients_per_chunk', 0, '"auto" or a whole number of clients'),
  ('clients_per_chunk', 'all', "got 'all'"),
  ('devices', -1, 'a whole number of devices (0 = all), 0 or more'),
  ('clients_placement', 'gpu', 'Choices: device, host'),
  ('on_divergence', 'ignore', "got 'ignore', expected what happens"),
  ('tracker', 'tensorboard', 'every run writes tb/'),
  ('tracker', 'wandb.ai', 'did you mean wandb?'),
  ('debug', 1, 'Choices: True, False'),
  ('quick', 'yes', 'the config argument :quick'),
  ('hp', None, '{} for the defaults of the method'),
]


@pytest.mark.parametrize(('name', 'value', 'words'), BAD)
def test_a_bad_setting_is_a_sentence(name, value, words):
  message = refused(make_settings(**{name: value}))
  assert message.startswith(f'{name.replace("__", ".")}: got ')
  assert words in message
  choices = FIELDS[name.replace('__', '.')].rule.listed_choices()
  if choices:
    assert f'Choices: {", ".join(map(str, choices))}' in message


def test_every_field_has_a_bad_value_above():
  assert {name.replace('__', '.') for name, _, _ in BAD} == {*FIELDS}


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
    {
      'clients_per_chunk': 3,
      'seed': 0,
      'shards_per_client': 1,
      'num_clients': 1,
      'save_clients': (0,),
    },
    {'finetune__epochs': [1, 5], 'hp': {'anything': 1}},
    # Of the tables of the FedBABU paper: 4 and 6, 10, 11, 2, 24, 14 and 25.
    {
      'finetune__trainable': 'head',
      'finetune__epochs': (1, 2, 3, 4, 5, 10, 15, 20),
    },
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


def test_a_server_may_not_train_on_what_clients_are_tested_on():
  message = refused(
    make_settings(test_partition='split', server_data_fraction=0.1)
  )
  assert (
    'server_data_fraction: got 0.1, expected 0 with test_partition=split'
    in message
  )
  parse_config(make_settings(test_partition='split'))


def test_a_python_loop_has_its_clients_on_the_device():
  message = refused(make_settings(debug=True, clients_placement='host'))
  assert message.startswith('clients_placement: got ')
  assert 'device with debug=True' in message


def test_epochs_that_no_memory_holds():
  message = refused(make_settings(rounds=1, local_epochs=100_001))
  assert 'local_epochs: got 100001, expected at most 100000' in message
  message = refused(make_settings(total_epochs=10**7))
  assert 'rounds: got 2000000, expected at most 1000000' in message


@pytest.mark.parametrize('settings', [None, 'configs/x.py', [('seed', 0)]])
def test_what_is_no_dict_of_settings(settings):
  assert 'expected a dict of settings' in refused(settings)


def test_fields_that_are_no_words():
  message = refused({**make_settings(), 5: 1})
  assert 'config: got 5, expected a field of a config' in message


def test_an_unknown_field_lists_the_fields():
  message = refused(make_settings(shard_per_client=5))
  assert "config: got 'shard_per_client', expected a field of a con" in message
  assert '(did you mean shards_per_client?)' in message
  for name in FIELDS:
    assert f'{name}, ' in message or f'{name} (' in message


def test_an_unknown_inner_field_lists_those_of_its_group():
  message = refused(make_settings(finetune__epoch=5))
  choices = message.partition('Choices: ')[2].partition(' (did')
  assert choices[0].split(', ') == [f for f in FIELDS if 'finetune.' in f]
  assert choices[2].startswith(' you mean finetune.epochs?)')
  assert 'finetune.trainable' in refused(make_settings(finetune=5))


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
  with pytest.raises(AttributeError):
    settings.seed = 1
  with pytest.raises(AttributeError):
    settings.data.num_clients = 1
  with pytest.raises(TypeError):
    settings.hp['trainable'] = 'body'


def test_replaced_settings_are_checked():
  settings = Settings()
  other = replace(settings, {'finetune.epochs': (1, 5)}, seed=1)
  assert (other.seed, other.finetune.epochs) == (1, (1, 5))
  assert settings == Settings()
  message = helpers.refused(replace, settings, {'seed': -1})
  assert message.startswith('seed: got -1')


def test_a_server_may_not_train_on_what_is_kept_for_choosing():
  both = {'validation_fraction': 0.1, 'server_data_fraction': 0.1}
  message = refused(make_settings(**both))
  words = 'server_data_fraction: got 0.1, expected 0 with validation_fraction'
  assert words in message


def test_validation_chooses_among_examples_that_are_kept():
  message = refused(make_settings(select='validation'))
  words = "select: got 'validation', expected last without validation_fraction"
  assert words in message
  settings = make_settings(select='validation', validation_fraction=0.1)
  assert parse_config(settings).evaluation.select == 'validation'


def test_rounds_are_given_or_follow_from_epochs():
  def rounds(**changes):
    return parse_config(make_settings(**changes)).num_rounds

  assert rounds() == 80 // 5
  assert rounds(total_epochs=84) == 16
  assert rounds(rounds=3) == 3


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
    *(
      'metrics',
      'select',
      'test_fraction',
      *(n for n in FIELDS if n.startswith('finetune.')),
    ),
  }
  assert RESUMABLE == ('devices', 'clients_placement', 'tracker')
