"""The models by their number of parameters, names and errors."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.errors import BadInput
from fedjax_pfl.models import layers, mobilenet, resnet
from fedjax_pfl.models.task import make_task, task_from_module, unit_range
from fedjax_pfl.types import Batch

pytestmark = pytest.mark.usefixtures('quick_compiler')

# FedBABU protocol, section 2: name, image, classes, parameters, of the head.
COUNTS = [
  ('convnet3', (28, 28, 1), 62, 110_654, 35_774),
  ('convnet4', (32, 32, 3), 10, 115_658, 2_570),
  ('mobilenet', (32, 32, 3), 100, 3_309_476, 102_500),
  ('resnet10', (32, 32, 3), 100, 4_949_412, 51_300),
  ('resnet18', (32, 32, 3), 100, 11_220_132, 51_300),
  ('resnet50', (32, 32, 3), 100, 23_705_252, 204_900),
]


def digits(**options):
  options = {'image_shape': (8, 8, 1), 'num_classes': 10} | options
  return make_task('convnet3', **options)


def batch(rows=6, real=6):
  x = np.random.default_rng(0).normal(size=(rows, 8, 8, 1))
  mask = (jnp.arange(rows) < real).astype(float)
  return Batch(jnp.asarray(x, jnp.float32), jnp.arange(rows) % 10, mask)


@pytest.mark.parametrize('name, shape, classes, total, head', COUNTS)
def test_parameter_counts(name, shape, classes, total, head):
  task = make_task(name, image_shape=shape, num_classes=classes)
  params = jax.eval_shape(task.init, jax.random.key(0))
  sizes = jax.tree.map(lambda leaf: math.prod(leaf.shape), params)
  assert sum(jax.tree.leaves(sizes)) == total
  assert sum(jax.tree.leaves(sizes['head'])) == head
  of_head = jax.tree.map(lambda n, is_head: n * is_head, sizes, task.is_head)
  assert sum(jax.tree.leaves(of_head)) == head
  features = jax.eval_shape(
    task.features, params, jnp.zeros((2, *shape)), jnp.ones(2)
  )
  assert features.shape == (2, params['head']['kernel'].shape[0])


def test_names_are_nested():
  task = make_task('resnet10', image_shape=(32, 32, 3), num_classes=4)
  params = jax.eval_shape(task.init, jax.random.key(0))
  assert set(params) == {
    *('stem', 'stem_bn', 'stage1', 'stage2', 'stage3', 'stage4', 'head'),
  }
  assert set(params['stage2']['block0']) == {
    *('conv1', 'bn1', 'conv2', 'bn2', 'shortcut', 'shortcut_bn'),
  }
  assert set(params['stage1']['block0']) == {'conv1', 'bn1', 'conv2', 'bn2'}


@pytest.mark.parametrize('lowering', ['gemm', 'lax'])
def test_digits_have_64_features(lowering):
  task = digits(lowering=lowering)
  params = task.init(jax.random.key(0))
  x, _, mask = batch()
  features = jax.jit(task.features)(params, x, mask)
  assert features.shape == (6, 64)
  logits = features @ params['head']['kernel'] + params['head']['bias']
  np.testing.assert_allclose(
    jax.jit(task.logits)(params, x, mask), logits, atol=1e-5
  )


@pytest.mark.parametrize(
  'module, sides, channels',
  [
    (mobilenet.Block, (5, 4), 3),
    (resnet.BasicBlock, (4, 5), 3),
    (resnet.Bottleneck, (4, 4), 8),
  ],
)
def test_blocks_agree(module, sides, channels):
  """One block of each kind, with stride and so with a projection."""
  x = np.random.default_rng(0).normal(size=(4, *sides, channels))
  with jax.enable_x64(True):
    x, mask = jnp.asarray(x), jnp.array([1.0, 1, 1, 0])
    blocks = {how: module(4, 2, how) for how in ('gemm', 'lax')}
    params = jax.jit(blocks['lax'].init)(jax.random.key(0), x, mask)
    got, want = (
      jax.jit(
        jax.value_and_grad(lambda p, b=b: (b.apply(p, x, mask) ** 2).sum())
      )(params)
      for b in blocks.values()
    )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_loss_is_the_masked_mean_and_zero_without_examples():
  task = digits()
  params = task.init(jax.random.key(0))
  loss = jax.jit(jax.value_and_grad(task.loss))
  value, _ = loss(params, batch(6, real=4), None)
  x, y, mask = batch(6, real=4)
  rows = jax.nn.log_softmax(jax.jit(task.logits)(params, x, mask))
  want = -np.mean([rows[i, y[i]] for i in range(4)])
  np.testing.assert_allclose(value, want, rtol=1e-5)
  value, grads = loss(params, batch(6, real=0), None)
  assert value == 0
  assert all(not leaf.any() for leaf in jax.tree.leaves(grads))


def test_transforms_scale_bytes_and_keep_floats():
  key = jax.random.key(0)
  pixels = jnp.array([0, 51, 255], jnp.uint8)
  np.testing.assert_allclose(unit_range(pixels, key), [0, 0.2, 1], rtol=1e-6)
  assert unit_range(jnp.array([7.0]), key) == 7
  assert digits().augment is digits().normalise is unit_range


class Tiny(nn.Module):
  """A module of a user: its last layer is called as `last` says."""

  last: str = 'head'
  norm: type[nn.Module] | None = None

  def setup(self):
    if self.last == 'everything':
      self.head = layers.Dense(3)
    else:
      self.body = layers.Dense(4)
      setattr(self, self.last, layers.Dense(3))
    if self.norm:
      self.bn = self.norm(use_running_average=False)

  def features(self, x, mask):
    del mask
    x = x.reshape(len(x), -1)
    x = self.bn(x) if self.norm else x
    return x if self.last == 'everything' else self.body(x)

  def __call__(self, x, mask):
    last = 'head' if self.last == 'everything' else self.last
    return getattr(self, last)(self.features(x, mask))


class NoFeatures(nn.Module):
  @nn.compact
  def __call__(self, x, mask):
    return layers.Dense(3, name='head')(x.reshape(len(x), -1))


def test_module_of_a_user():
  task = task_from_module(Tiny(), image_shape=(2, 2, 1), num_classes=3)
  assert task.is_head == {
    'body': {'kernel': False, 'bias': False},
    'head': {'kernel': True, 'bias': True},
  }
  params = task.init(jax.random.key(0))
  x = jnp.ones((5, 2, 2, 1))
  assert task.features(params, x, jnp.ones(5)).shape == (5, 4)
  assert task.logits(params, x, jnp.ones(5)).shape == (5, 3)


@pytest.mark.parametrize(
  'module, sentence',
  [
    (Tiny('last_one'), r'selects 0 of 4 leaves.*last_one/bias.*"head"\?'),
    (Tiny('everything'), r'selects 2 of 2 leaves'),
    (Tiny(norm=nn.BatchNorm), r'batch_stats.*layers\.BatchNorm'),
    (NoFeatures(), r'no method `features`'),
  ],
)  # fmt: skip
def test_errors_of_modules(module, sentence):
  with pytest.raises(BadInput, match=sentence):
    task_from_module(module, image_shape=(2, 2, 1), num_classes=3)


def test_errors_of_sizes():
  with pytest.raises(BadInput, match=r'\(2, 3\).*expected logits of.*\(2, 4\)'):
    task_from_module(Tiny(), image_shape=(2, 2, 1), num_classes=4)
  with pytest.raises(BadInput, match='at least 16x16 pixels'):
    make_task('convnet4', image_shape=(8, 8, 1), num_classes=10)
  with pytest.raises(BadInput, match=r'\(height, width, channels\)'):
    make_task('convnet3', image_shape=(28, 28), num_classes=10)
  with pytest.raises(BadInput, match=r'did you mean resnet\d0'):
    make_task('resnet9', image_shape=(8, 8, 1), num_classes=10)
  with pytest.raises(BadInput, match=r'lowering: got .fast.'):
    digits(lowering='fast')
