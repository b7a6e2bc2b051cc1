"""Runs whose clients have different models."""

import flax.linen as nn
import jax
import numpy as np
import pytest
from helpers import refused
from small_runs import make_settings, numbers_of, record

from fedjax_pfl.core import trees
from fedjax_pfl.core.user_code import UserCode
from fedjax_pfl.models.registry import student_of
from fedjax_pfl.results.tables.result_table import table
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.build_method import build_task, peek_shape
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler')


class Narrow(nn.Module):
  num_classes: int
  width: int = 6

  def setup(self):
    self.below, self.head = nn.Dense(self.width), nn.Dense(self.num_classes)

  def features(self, x, mask):
    return nn.tanh(self.below(x.reshape(len(x), -1)))


class Wide(Narrow):
  width: int = 8


CODE = tuple(UserCode(f'nets.py:{one.__name__}', one) for one in (Narrow, Wide))
NAMES = {'nets.py:Narrow', 'nets.py:Wide'}
VIEWS = {'views': ('personal',), 'eval_views': ('personal',)}
MIXED = {'algorithm': 'fedproto', 'models': CODE, 'feature_width': 4, **VIEWS}


def experiment(**changes):
  return build_experiment(make_settings(**MIXED, **changes))


@pytest.fixture(scope='module')
def recorded(tmp_path_factory):
  return record(experiment(), tmp_path_factory.mktemp('mixed'), kills=[4])


def test_a_run_that_was_killed_ends_with_the_same_bits(recorded):
  killed = recorded.folder / 'killed4'
  train(recorded.experiment, killed, recorded.program)
  assert numbers_of(killed) == numbers_of(recorded.path)


def test_results_and_models_name_the_model_of_each_client(recorded):
  models = recorded.result['models']
  assert {*models} == NAMES
  means = [own['personal']['mean'] for own in models.values()]
  whole = recorded.result['views']['personal']['mean']
  assert np.isclose(np.mean(means), whole)  # five clients each
  lines = table([recorded.result]).splitlines()
  assert [line.split()[0] for line in lines[3:5]] == sorted(NAMES)
  for client, own in ((0, CODE[0]), (3, CODE[1])):
    path = recorded.path / 'model' / f'personal_client{client}.npz'
    params, about = load_model(path)
    assert about['model'] == own
    kernel = params['below']['kernel']
    assert kernel.shape == (64, own.value.width)
    assert params['head']['kernel'].shape == (4, 10)


def test_a_file_says_who_has_which_model(tmp_path):
  file = tmp_path / 'models.txt'
  names = ['nets.py:Wide'] * 7 + ['nets.py:Narrow'] * 3
  file.write_text('\n'.join(names))
  how = parse_config(make_settings(**MIXED, model_of_client=str(file)))
  groups = how.architectures.of_clients(10)
  assert groups.tolist() == [1] * 7 + [0] * 3
  file.write_text('\n'.join(names[:-1]))
  assert 'other content' in refused(how.architectures.of_clients, 10)


@pytest.mark.parametrize(
  ('made', 'words'),
  [
    (['nets.py:Wide'] * 9, 'who.py:who: 9 names'),
    (['nets.py:Wide', 'nets.py:Wibe'] * 5, 'mean nets.py:Wide'),
    ([0, 1] * 5, "who.py:who: 0', expected a function"),
    ('nets.py:Wide', "who.py:who: str', expected a function"),
    (None, "who.py:who: NoneType', expected a function"),
    (ZeroDivisionError, 'who to run without an error'),
    (np.array(['nets.py:Wide', 'nets.py:Narrow'] * 5), None),
  ],
)
def test_a_function_says_who_has_which_model(made, words):
  def who(num_clients, models):
    assert (num_clients, models) == (10, ('nets.py:Narrow', 'nets.py:Wide'))
    return 1 / 0 if made is ZeroDivisionError else made

  code = UserCode('who.py:who#0123456789ab', who)
  how = parse_config(make_settings(**MIXED, model_of_client=code))
  of_clients = how.architectures.of_clients
  if words:
    assert words in refused(of_clients, 10)
  else:
    assert of_clients(10).tolist() == [1, 0] * 5


def test_a_model_of_the_user_has_a_listed_student():
  settings = parse_config(make_settings(**MIXED))
  task = build_task(settings, peek_shape(settings.data))
  student = student_of(task, 'convnet3')
  params = jax.eval_shape(student.init, jax.random.key(0))
  assert params['head']['kernel'].shape[1] == 10
  assert 'conv1' in params


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      {'algorithm': 'fedavg', 'views': ('initial',), 'eval_views': ()},
      'fedpro',
    ),
    ({'feature_width': 0}, 'features of one width'),
    ({'models': (*CODE, 'convnet4')}, 'at least 16x16'),
    ({'models': ('convnet5',)}, 'known models'),
    ({'models': CODE * 6}, 'which no client has'),
    ({'models': (), 'model_of_client': 'x'}, 'alone it does nothing'),
    ({'model_of_client': 'absent.txt'}, 'a text file of 10 names'),
    ({'clients_per_chunk': 2}, 'auto or 1 with several models'),
    ({'server_data_fraction': 0.1}, 'no models with server_data'),
  ],
)
def test_what_does_not_go_with_several_models_is_refused(changes, words):
  config = make_settings(**{**MIXED, **changes})
  assert words in refused(build_experiment, config)


def test_adapters_and_a_width_go_together():
  config = make_settings(model='vit_tiny', feature_width=4, lora_rank=2)
  config |= {'algorithm': 'partial', 'hp': {'shared': '*/lora_*'}}
  settings = parse_config(config)
  task = build_task(settings, peek_shape(settings.data))
  params = jax.eval_shape(task.init, jax.random.key(0))
  assert params['head']['kernel'].shape == (4, 10)
  assert any('lora_a' in name for name in trees.leaf_names(params))
