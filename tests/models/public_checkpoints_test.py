"""Public checkpoints: forward passes are PyTorch's; other files are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import public_checkpoints as public
import pytest
from helpers import KEY, long, refused

from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.core.types import Batch
from fedjax_pfl.models.public_checkpoints import our_name
from fedjax_pfl.models.registry import make_task
from fedjax_pfl.training.warm_start import load_start

pytestmark = pytest.mark.usefixtures('quick_compiler')


def task_of(model, side, num_classes=1000, statistics=None):
  if statistics is None:
    statistics = norm_stats.FROZEN if 'resnet' in model else False
  return make_task(
    model,
    image_shape=(side, side, 3),
    num_classes=num_classes,
    running_statistics=statistics,
  )


def start_of(path, model, side=32, log=print, **how):
  task = task_of(model, side, **how)
  return load_start(path, model, (side, side, 3), task, log), task


@pytest.mark.parametrize(
  ('network', 'model', 'side'),
  [
    ('resnet18', 'resnet18_imagenet', 64),
    long('resnet50', 'resnet50_imagenet', 64),
    ('vit_ti16_at_96', 'vit_ti16', 96),
    long('vit_ti16', 'vit_ti16', 224),
    long('vit_b16', 'vit_b16', 224),
    long('torchvision_vit_b16', 'vit_b16', 224),
  ],
)
def test_the_forward_pass_is_that_of_pytorch(network, model, side, tmp_path):
  path = public.write(tmp_path, public.tensors(network))
  lines = []
  start, task = start_of(path, model, side, lines.append)
  assert lines == []
  x, want = public.images(side), public.golden(network)
  features = jax.jit(task.features)(start.params, x, jnp.ones(2))
  np.testing.assert_allclose(features, want['features'], atol=1e-4)
  logits = task.classify(start.params, features)
  np.testing.assert_allclose(logits[:, :10], want['logits'], atol=1e-4)


def test_names_of_ours_stay():
  for model in ('resnet18_imagenet', 'vit_ti16'):
    shapes = jax.eval_shape(task_of(model, 32).init, KEY(0))
    names = trees.leaf_names(shapes)
    assert [our_name(name, model) for name in names] == names


def zeros(*shape):
  return np.zeros(shape, 'f4')


RESNET, VIT = ('resnet18', 'resnet18_imagenet'), ('vit_ti16',) * 2
MEAN, CONV = {'layer4.1.bn2.running_var': None}, 'layer1.2.conv1.weight'


@pytest.mark.parametrize(
  ('network', 'model', 'edit', 'words'),
  [
    (*RESNET, MEAN, 'no stage4/block1/bn2/running_var'),
    (*RESNET, {CONV: zeros(64, 64, 3, 3)}, 'imagenet has not: stage1/block2/c'),
    (
      *RESNET,
      {'conv1.weight': zeros(64, 3, 3, 3)},
      'in place of [7, 7, 3, 64]',
    ),
    # Of no square.
    (*VIT, {'pos_embed': zeros(1, 6, 192)}, '[6, 192] in place of [5, 192]'),
    ('vit_ti16', 'vit_b16', {}, '[192, 768] in place of [768, 3072]'),
  ],
)
def test_another_network_is_refused(network, model, edit, words, tmp_path):
  found = public.tensors(network) | edit
  found = {name: leaf for name, leaf in found.items() if leaf is not None}
  path = public.write(tmp_path, found)
  message = refused(lambda: start_of(path, model))
  assert words in message


def test_a_head_of_other_classes_and_idle_statistics_are_said(tmp_path):
  found = public.tensors('resnet18')
  found['bn1.num_batches_tracked'] = np.zeros(1, 'i8')
  path, lines = public.write(tmp_path, found), []
  how = {'num_classes': 10, 'statistics': False}
  start, _ = start_of(path, 'resnet18_imagenet', log=lines.append, **how)
  assert start.params['head'] == {'bias': None, 'kernel': None}
  fresh, unused = lines
  assert 'head/kernel [512, 1000] in place of [512, 10]' in fresh
  assert 'running_mean' in unused and 'num_batches' not in unused


def test_frozen_statistics_normalise_in_training_and_stay():
  task = make_task(
    'convnet3',
    image_shape=(8, 8, 1),
    num_classes=10,
    running_statistics=norm_stats.FROZEN,
  )
  assert task.batch_independent
  x = np.random.default_rng(0).normal(size=(4, 8, 8, 1)).astype('f4')
  batch = Batch(jnp.asarray(x), jnp.arange(4), jnp.ones(4))
  params = task.init(KEY(0))
  params = jax.tree.map(lambda leaf: leaf + 0.1, params)

  @jax.jit
  def run(params):
    trained = task.train_outputs(params, batch, KEY(1)).logits
    tested = task.logits(params, batch.x, batch.mask)
    return trained, tested, jax.grad(task.loss)(params, batch, KEY(1))

  trained, tested, grads = run(params)
  np.testing.assert_allclose(trained, tested, rtol=1e-6, atol=1e-6)
  still = trees.select(grads, norm_stats.mask(grads))
  assert all(not leaf.any() for leaf in jax.tree.leaves(still))
  assert grads['bn1']['scale'].any()
