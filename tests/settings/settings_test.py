"""Every setting that is wrong is told in one sentence of four parts."""

import json
import math
from collections import namedtuple
from functools import partial
from types import SimpleNamespace

import helpers
import numpy as np
import pytest
from pages import ROOT
from small_runs import settings_of

from fedjax_pfl.around.sim_time import read_speeds
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core.user_code import UserCode
from fedjax_pfl.settings import (
  EVALUATION,
  FIELDS,
  RESUMABLE,
  TRAINING,
  Settings,
  changing,
  defaults,
  document,
  flat_config,
  parse_config,
  replace,
  to_config,
)
from fedjax_pfl.settings.validate import effective
from fedjax_pfl.training import keys

make_settings = partial(settings_of, arg='fedbabu')


def refused(settings):
  message = helpers.refused(parse_config, settings)
  for part in (': got ', ', expected '):
    assert message.count(part) == 1, message
  assert message.endswith('.') and '..' not in message
  return message


# What breaks the rule of a field, beside -1.
BAD = {
  'aggregation_before': ([0.5],),
  'class_families': (10, 0),
  'client_fraction': 10,
  'data_dir': 'a\0b',
  'dirichlet_beta': math.inf,
  'finetune.epochs': (),
  'init_from': 'x' * 300,
  'learning_rate': 0,
  'lr_milestones': (160, 240),
  'loss': 'own.py:my loss',
  'metrics': ('recall',),
  'num_clients': True,
  'rounds': 0,
  'seed': (0, 1),
  'test_fraction': 1,
  'views': (1,),
}


@pytest.mark.parametrize('name', FIELDS)
def test_a_bad_setting_is_a_sentence(name):
  rule = FIELDS[name].rule
  for value in (-1, BAD.get(name, math.nan)):
    message = refused(make_settings(**{name.replace('.', '__'): value}))
    assert message.startswith(f'{name}: got ')
    assert f', expected {rule.expected}.' in message
    if rule.choices:
      assert f'Choices: {", ".join(map(str, rule.choices))}' in message


BUFFERS = {'buffer_size': 3, 'client_speeds': 'lognormal'}
DP = {'dp__clip': 1.0, 'dp__epsilon': 8.0, 'dp__delta': 1e-5}
EXAMPLES = {'aggregation': 'examples'}
QUIET, LOUD = ({'dp__clip': 1.0, 'dp__noise_multiplier': z} for z in (1e-6, 1))
NOBODY = {'num_clients': 10, 'unseen_clients': 20, 'save_clients': ()}
UNSEEN = {'unseen_clients': 2, 'server_data_fraction': 0.1}
DEBUG = {'debug': True, 'clients_placement': 'host'}
ON_DISK = {'validation_fraction': 0.3, 'clients_placement': 'disk'}
FEW = {**BUFFERS, 'num_clients': 2, 'save_clients': ()}
# changes, the field that the sentence is about, and words of it
TOGETHER = [
  ({'model': 'resnet19'}, 'model', 'did you mean resnet18?'),
  ({'seed': 2**32}, 'seed', 'up to 4294967295'),
  ({'batch_size': 2**31}, 'batch_size', 'up to 2147483647'),
  ({'learning_rate': 1e39}, 'learning_rate', 'what 32 bits hold'),
  ({'finetune__epochs': (5, 100_001)}, 'finetune.epochs', 'up to 100000'),
  ({'local_epochs': 81}, 'local_epochs', 'at most total_epochs, 80'),
  ({'total_epochs': 10**7}, 'total_epochs', 'at most 1000000 rounds'),
  ({'rounds': 0}, 'rounds', 'rounds=0 with init_from=RUN'),
  ({'views': ()}, 'views', 'during the rounds are eval_views'),
  ({'save_clients': (0, 20)}, 'save_clients', 'take part in rounds, 0 to 19'),
  (NOBODY, 'unseen_clients', 'got 20, expected less than num_clients, 10'),
  (UNSEEN, 'server_data_fraction', 'expected 0.0 with unseen_clients: the'),
  ({'select': 'validation'}, 'select', 'last without validation_fraction'),
  (DEBUG, 'clients_placement', 'device with debug: its loop'),
  (ON_DISK, 'validation_fraction', 'with clients_placement=disk: the states'),
  (QUIET, 'dp.noise_multiplier', 'expected a number, 0.01 or more'),
  ({'dp__epsilon': 8.0}, 'dp.epsilon', 'Choices: dp.clip=1, dp.epsilon=0.0'),
  ({'dp__clip': 1.0, 'dp__delta': 1e-5}, 'dp.epsilon', 'expected a budget, or'),
  ({'dp__clip': 1.0, 'dp__epsilon': 8.0}, 'dp.clip', 'Choices: dp.delta=1e-5'),
  (DP | LOUD, 'dp.epsilon', 'expected 0 with dp.noise_multiplier'),
  (DP | EXAMPLES, 'dp.clip', 'aggregation=examples: noise in the sum of chan'),
  (DP | BUFFERS, 'dp.clip', 'buffer_size: noise in the sum of changes does no'),
  ({'finetune': 5}, 'config', 'finetune.epochs'),
  ({'deadline': 3.0}, 'deadline', 'client_speeds=lognormal'),
  ({**BUFFERS, 'deadline': 1.0}, 'buffer_size', 'deadline=0'),
  (FEW, 'buffer_size', 'at most the 2 clients: none is twice in a buffer'),
  ({**BUFFERS, 'compression': 'qsgd'}, 'compression', 'none with buffer_size'),
]


@pytest.mark.parametrize(('changes', 'name', 'words'), TOGETHER)
def test_settings_that_do_not_go_together(changes, name, words):
  message = refused(make_settings(**changes))
  assert message.startswith(f'{name}: got ') and words in message


def test_an_unknown_field_is_answered_with_the_nearest_ones():
  message = refused(make_settings(shard_per_client=5))
  assert f'`fedjax-pfl settings` lists all {len(FIELDS)}' in message
  shown = message.partition('Choices: ')[2].partition(' (did')[0].split(', ')
  assert (
    shown[0] == 'shards_per_client' and len(shown) == 3 and {*shown} < {*FIELDS}
  )
  message = refused(make_settings(finetune__epoch=5))
  assert 'Choices: finetune.epochs, finetune.' in message
  assert '(did you mean finetune.epochs?)' in message
  assert (
    'Likely cause: a hyperparameter of a method, which is hp.mu'
    in refused(make_settings(mu=0.1))
  )
  assert 'Choices: learning_rate.' in refused(make_settings(lr=0.1))
  message = refused(make_settings(alpha=0.1))
  assert 'Choices: dirichlet_beta.' in message and 'hp.alpha' in message


def test_what_is_no_dict_of_settings():
  assert 'expected a dict of settings' in refused('configs/x.py')


@pytest.mark.parametrize(
  'good',
  [
    {},
    {'rounds': 1, 'local_epochs': 1000},  # rounds given: no division
    {'rounds': 0, 'init_from': 'runs/a'},
    {'client_fraction': 1, 'momentum': 0, 'weight_decay': 0},
    {'lr_milestones': (), 'eval_views': (), 'save_clients': []},
    {'select': 'validation', 'validation_fraction': 0.1},
    {'server_data_fraction': 1, 'head_init': 'similar', 'head_bias': 'zero'},
  ],
)
def test_the_ends_of_the_rules_are_good(good):
  parse_config(make_settings(**good))


def test_a_field_that_is_left_out_has_its_default():
  config = defaults()
  del config['finetune'], config['seed']
  settings = parse_config({})
  assert parse_config(config) == settings
  assert flat_config(settings) == flat_config(Settings()) | {
    'norm_statistics': 'batch'
  }
  of_numpy = {'num_clients': np.int64(100), 'debug': np.bool_(False)}
  assert parse_config(of_numpy) == settings


def test_other_numbers_in_a_file_of_speeds_are_another_run(tmp_path):
  file, seen = tmp_path / 'speeds', set()
  for text in ('1 2 3', '1 2 4', '1 2 3'):
    file.write_text(text)
    settings = parse_config({'client_speeds': str(file)})
    seen.add(settings.speeds.client_speeds)
    assert parse_config(to_config(settings)) == settings
    assert read_speeds(settings.speeds.client_speeds, 3)[1] == 2
  assert len(seen) == 2
  file.write_text('2 2 3')
  refused = helpers.refused(read_speeds, min(seen), 3)
  assert 'other content than' in refused


def test_settings_and_configs_go_to_and_fro():
  config = make_settings(finetune__epochs=[1, 2], hp={'trainable': 'head'})
  settings = parse_config(config)
  assert settings.finetune.epochs == (1, 2)
  assert settings.hp['trainable'] == 'head'
  assert parse_config(to_config(settings)) == settings
  assert parse_config(flat_config(settings)) == settings
  assert parse_config(settings) is settings
  assert {*flat_config(settings)} == {*FIELDS}


@pytest.mark.parametrize(
  ('changes', 'kind'),
  [
    ({'dataset': 'digits'}, 'batch'),
    ({}, 'running'),
    ({'norm_statistics': 'batch'}, 'batch'),
    ({'algorithm': 'fednova'}, 'batch'),  # which cannot keep them
    ({'model': 'vit_tiny'}, 'batch'),  # which has none
    ({'dp': {'clip': 1.0, 'delta': 1e-3, 'noise_multiplier': 1.0}}, 'batch'),
    ({'init_from': 'run'}, 'frozen'),
    ({'init_from': 'lost'}, 'batch'),
  ],
)
def test_own_data_have_running_statistics(tmp_path, changes, kind):
  """And other runs what they had: the key of a public set has no statistics."""
  if 'init_from' in changes:
    changes = {'init_from': str(tmp_path / changes['init_from'])}
    (tmp_path / 'run').mkdir()
    record = {
      'config': {'norm_statistics': 'frozen'},
      'data': 'x',
      'version': '1',
    }
    (tmp_path / 'run' / 'config.json').write_text(json.dumps(record))
  settings = parse_config({'dataset': 'npz', 'model': 'convnet3', **changes})
  assert settings.model.norm_statistics == kind
  assert parse_config(to_config(settings)) == settings
  fields = keys._differing(settings, keys.TRAINED)
  assert ('norm_statistics' in fields) == (kind != 'batch')


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
    'model_devices',
    *('tracker', 'debug', 'quick'),
  }
  assert {*changing(EVALUATION)} == {
    *('adapt_on', 'scoring', 'test_partition', 'test_shards_per_client'),
    *('metrics', 'select', 'tune_by', 'test_fraction', 'eval_clients'),
    *(name for name in FIELDS if name.startswith('finetune.')),
  }
  resumable = {'data_dir', 'devices', 'clients_placement', 'tracker', 'debug'}
  resumable |= {'model_devices'}
  assert {*RESUMABLE} == resumable


def test_the_page_is_that_of_the_code():
  stored = (ROOT / 'docs' / 'settings.md').read_text()
  assert stored == document.as_markdown(), (
    'docs/settings.md: fedjax-pfl settings --write'
  )
  lines = document.as_text().splitlines()
  assert '  class_clusters (5): semantic: disjoint clusters of classes' in lines
  for name, field in FIELDS.items():
    assert any(line.startswith(f'  {name} (') for line in lines), name
    assert field.help, f'{name} is not in the docstring of its section'


def test_effective_hyperparameters_are_what_json_holds():
  """Defaults of a method of the user's own may be of NumPy, or functions."""
  own = {
    'train': LocalTraining(),
    'finetune': Finetuning(),
    'mu': 0.1,
    'rate': np.float32(0.5),
    'squash': math.tanh,
  }
  record = namedtuple('HParams', own, defaults=own.values())
  method = SimpleNamespace(HParams=record, build=lambda task, hp: ())
  name = UserCode('own.py:method#0123456789ab', method)
  settings = SimpleNamespace(algorithm=name, hp={'mu': 2.0})
  want = {'mu': 2.0, 'rate': 0.5, 'squash': 'tanh'}
  assert effective(settings) == want
