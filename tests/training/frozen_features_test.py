"""Runs on public checkpoints, and on features that are computed once."""

import functools
import re

import jax
import numpy as np
import public_checkpoints as public
import pytest
from helpers import KEY, long, refused
from safetensors.numpy import save_file
from small_runs import make_settings, numbers_of

import fedjax_pfl as pfl
from experiments.accelerators.programs import load_blank
from fedjax_pfl.analysis.communication_budget import communication_budget
from fedjax_pfl.core import trees
from fedjax_pfl.models import transformer
from fedjax_pfl.models.registry import make_task
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.outline import outline, sketch
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')
HEAD = {'shared': 'head/*', 'personal': (), 'order': 'simultaneous'}
PARTIAL = {'algorithm': 'partial', 'hp': HEAD}
FEDAVG = {'algorithm': 'fedavg', 'hp': {}}
FEATURES = {**FEDAVG, 'frozen_features': True}
SMALL = {
  'rounds': 1,
  'client_fraction': 0.1,
  'views': ('initial',),
  'max_train_examples': 100,
}


@pytest.fixture
def small(tmp_path):
  """Return settings of a small model that begins with a file."""
  task = make_task(
    'convnet3', image_shape=(8, 8, 1), num_classes=10, running_statistics=True
  )
  shapes = trees.named(jax.eval_shape(task.init, KEY(0)))
  tensors = {
    name: np.asarray(public.drawn(name, leaf.shape), 'f4')
    for name, leaf in shapes.items()
  }
  path = str(tmp_path / 'small.safetensors')
  save_file(tensors, path)

  def settings(**changes):
    how = {'init_from': path, 'norm_statistics': 'frozen', **changes}
    return make_settings(**how)

  return settings


def result_of(settings, path):
  """Return the result of a run and the first lines of its metrics."""
  train(build_experiment(settings), path)
  return numbers_of(path), load_model(path / 'model' / 'global.npz')[0]


def test_features_once_are_features_of_every_step(small, tmp_path):
  """The head of FedAvg, and its scores, are those of a body that is frozen."""
  how = {'rounds': 3, 'eval_views': ('initial',), 'eval_global_model': True}
  (one, ours), (other, whole) = (
    result_of(small(**how, **kind), tmp_path / name)
    for name, kind in (('once', FEATURES), ('each', PARTIAL))
  )
  assert {*ours} == {'head'}
  for name, leaf in ours['head'].items():
    np.testing.assert_allclose(leaf, whole['head'][name], rtol=1e-4, atol=1e-6)
  lines = []
  again = build_experiment(small(**FEATURES, seed=1), lines.append)
  assert not any('frozen_features' in line for line in lines)  # kept
  start = again.task.init(KEY(0))
  assert np.abs(ours['head']['kernel'] - start['head']['kernel']).max() > 1e-3
  for view, scores in one['result.json']['views'].items():
    want = other['result.json']['views'][view]
    assert scores['mean'] == pytest.approx(want['mean'], rel=1e-6), view


def test_what_is_said_of_a_run_before_it_is_that_of_its_head(small):
  settings = parse_config(small(**FEATURES))
  (budget,), rounds = communication_budget(settings)
  assert budget.sizes.up == 4 * 10 * (64 + 1)
  assert rounds == pytest.approx(7, rel=0.01)
  blank = load_blank(outline(settings))
  assert blank.train.x.shape == (200, 64)
  assert {*blank.task.is_head} == {'head'}


@pytest.fixture
def one_block(monkeypatch):
  """Return the tensors of a transformer of one block, as vit_ti16 is here."""
  model = functools.partial(transformer.vit_ti16, blocks=1)
  monkeypatch.setattr(transformer, 'vit_ti16', model)
  deeper = re.compile(r'blocks\.[1-9]')
  found = public.tensors('vit_ti16')
  return {name: found[name] for name in found if not deeper.match(name)}


def moved(path, model, how, folder):
  """Return the paths of all leaves, and of those that a round moves.

  Grey digits of 8x8 become images of 32x32 in three channels.
  """
  own = {'init_from': path, 'model': model, 'model_image_size': 32, **how}
  experiment = build_experiment(make_settings(**{**SMALL, **own}))
  key = random_streams(experiment.settings.seed)['states']
  server, _ = pfl.begin(experiment.stages[0], experiment.train, key)
  begun = jax.tree.map(np.asarray, trees.named(server.params))
  train(experiment, folder)
  ended = trees.named(load_model(folder / 'model' / 'global.npz')[0])
  assert {*ended} == {*begun}
  return {*begun}, {
    name for name in begun if (ended[name] != begun[name]).any()
  }


LORA = {**PARTIAL, 'lora_rank': 2}
LORA['hp'] = {**HEAD, 'shared': '*/lora_*,head/*'}


@pytest.mark.parametrize('how', [FEATURES, LORA, long(FEDAVG)])
def test_a_round_moves_what_is_trained(one_block, tmp_path, how):
  """The head, of which there is no more then; adapters, too; or all."""
  path = public.write(tmp_path, one_block)
  begun, found = moved(path, 'vit_ti16', how, tmp_path / 'run')
  head = {'head/bias', 'head/kernel'}
  adapters = {name for name in begun if '/lora_' in name}
  assert len(adapters) == (2 * 5 if how is LORA else 0)
  assert found == (head | adapters if adapters else begun)
  assert (begun == head) == (how is FEATURES)


@pytest.mark.long
def test_a_round_on_a_resnet(tmp_path):
  """Frozen statistics stay; all else is trained."""
  path = public.write(tmp_path, public.tensors('resnet18'))
  how = {**FEDAVG, 'norm_statistics': 'frozen'}
  begun, found = moved(path, 'resnet18_imagenet', how, tmp_path / 'run')
  still = {name for name in begun if 'running_' in name}
  assert found == begun - still


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'init_from': '', 'norm_statistics': 'batch'}, 'False without init_from'),
    ({'norm_statistics': 'batch'}, 'convnet3 with norm_statistics=batch'),
    ({'algorithm': 'fedbabu'}, "got 'fedbabu', expected a method that trains"),
    ({'algorithm': 'fedconcat'}, "got 'fedconcat', expected a method"),
    ({'lora_rank': 2}, '0 with frozen_features'),
    (
      {'finetune': {'trainable': 'body', 'epochs': (1,)}},
      'the model is a head',
    ),
    ({'models': ('convnet3', 'vit_tiny')}, 'no models with'),
  ],
)
def test_what_does_not_go_with_frozen_features(small, changes, words):
  assert words in refused(build_experiment, small(**{**FEATURES, **changes}))


def test_frozen_statistics_need_a_file_and_a_sum_without_noise(small):
  words = 'expected auto without init_from: statistics that were never averaged'
  assert words in refused(build_experiment, small(init_from=''))
  private = {'dp': {'clip': 1.0, 'noise_multiplier': 1.0, 'delta': 1e-3}}
  private |= {'sampling': 'poisson', 'save_clients': (), **FEDAVG}
  message = refused(parse_config, small(**private))
  assert 'frozen_features=True' in message and 'frozen stat' in message
  parse_config(small(**private, frozen_features=True))


def test_augmented_images_have_no_features_once():
  how = {'dataset': 'cifar10', 'model': 'vit_ti16', 'model_image_size': 32}
  how |= {'init_from': 'vit.safetensors', **FEATURES}

  def trained(**changes):
    return sketch(parse_config(make_settings(**how, **changes)))

  assert 'which preprocessing=default augments' in refused(trained)
  assert trained(preprocessing='imagenet').inputs.image_shape == (192,)
