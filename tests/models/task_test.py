"""The models by their number of parameters, names and errors."""

import math
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_same_bits, long, refused

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.core.types import Batch
from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
DIGITS = {'image_shape': (8, 8, 1), 'num_classes': 10}

# FedBABU protocol, section 2; SuPerFed, 4.1; FedConcat, 4: name, image,
# classes, parameters, of the head.
COUNTS = [
  ('convnet3', (28, 28, 1), 62, 110_654, 35_774),
  ('char_lstm', (80,), 100, 821_124, 25_700),
  ('char_transformer', (80,), 65, 810_049, 8_385),
  ('convnet4', (32, 32, 3), 10, 115_658, 2_570),
  ('fedavg_cnn', (28, 28, 1), 10, 582_026, 5_130),
  ('mobilenet', (32, 32, 3), 100, 3_309_476, 102_500),
  ('resnet10', (32, 32, 3), 100, 4_949_412, 51_300),
  long('resnet18', (32, 32, 3), 100, 11_220_132, 51_300),
  long('resnet50', (32, 32, 3), 100, 23_705_252, 204_900),
  # torchvision's and timm's numbers.
  ('resnet18_imagenet', (64, 64, 3), 1000, 11_689_512, 513_000),
  long('resnet50_imagenet', (64, 64, 3), 1000, 25_557_032, 2_049_000),
  ('simple_cnn', (32, 32, 3), 10, 62_006, 850),
  ('superfed_cnn', (28, 28, 1), 62, 109_022, 31_806),
  ('superfed_cnn', (32, 32, 3), 100, 140_356, 51_300),
  ('superfed_cnn', (64, 64, 3), 200, 181_416, 102_600),
  ('vgg9', (32, 32, 3), 10, 3_491_530, 5_130),
  long('vit_b16', (224, 224, 3), 1000, 86_567_656, 769_000),
  ('vit_ti16', (224, 224, 3), 1000, 5_717_416, 193_000),
  ('vit_tiny', (32, 32, 3), 10, 2_693_194, 1_930),
]


@pytest.mark.parametrize('name, shape, classes, total, head', COUNTS)
def test_a_model_by_its_leaves(name, shape, classes, total, head):
  """Their numbers; which are of the head, and which of a norm."""
  task = make_task(name, image_shape=shape, num_classes=classes)
  params = jax.eval_shape(task.init, KEY(0))
  sizes = jax.tree.map(lambda leaf: math.prod(leaf.shape), params)
  assert sum(jax.tree.leaves(sizes)) == total
  assert sum(jax.tree.leaves(sizes['head'])) == head
  of_head = jax.tree.map(lambda n, is_head: n * is_head, sizes, task.is_head)
  assert sum(jax.tree.leaves(of_head)) == head
  x = jnp.zeros((2, *shape), int if len(shape) == 1 else float)
  features = jax.eval_shape(task.features, params, x, jnp.ones(2))
  rows = 2 * task.num_labels
  assert features.shape == (rows, params['head']['kernel'].shape[0])
  for path, is_norm in jax.tree_util.tree_leaves_with_path(task.is_norm):
    names = [key.key for key in path]
    of_norm = [n.startswith(('bn', 'norm')) or n.endswith('_bn') for n in names]
    assert is_norm == any(of_norm)


@pytest.mark.parametrize('name, side', [('simple_cnn', 16), ('convnet3', 8)])
def test_features_of_a_row_do_not_depend_on_other_rows(name, side):
  task = make_task(name, image_shape=(side, side, 1), num_classes=10)
  params, mask = task.init(KEY(0)), jnp.ones(3)
  x = np.random.default_rng(0).normal(size=(3, side, side, 1))
  features = jax.jit(task.features)
  one, other = (
    features(params, jnp.asarray(x * [[[[1]]], [[[k]]], [[[-k]]]]), mask)
    for k in (1, 20)
  )
  assert (one[1] != other[1]).any()
  assert task.batch_independent == bool((one[0] == other[0]).all())


@pytest.mark.parametrize(
  'name, precision, how',
  [
    long('convnet4', 'float32', 'gemm'),
    ('convnet4', 'tf32', 'fused'),
    ('mobilenet', 'float32', 'gemm'),
    ('simple_cnn', 'float32', 'gemm'),
    ('resnet10', 'float32', 'fused'),
    long('vgg9', 'float32', 'fused'),
  ],
)
def test_auto_on_a_gpu_is_that_of_the_model(name, precision, how):
  def program(conv_impl):
    model = {'conv_impl': conv_impl, 'precision': precision}
    task = make_task(name, image_shape=(16, 16, 3), num_classes=10, **model)
    params = jax.eval_shape(task.init, KEY(0))
    x = jnp.zeros((2, 16, 16, 3))
    traced = jax.make_jaxpr(task.features)(params, x, jnp.ones(2))
    return re.sub('0x[0-9a-f]+', '', str(traced))

  with compiling_for('gpu'):
    auto, *others = map(program, ('auto', 'gemm', 'fused', 'lax'))
  ways = dict(zip(('gemm', 'fused', 'lax'), others, strict=True))
  assert [way for way in ways if ways[way] == auto] == [how]
  # cuDNN's convolutions of several clients are slow.
  assert ('conv_general_dilated[' in auto) == (how != 'gemm')


@pytest.mark.long
def test_first_parameters_have_the_same_bits_inside_another_program():
  """Alone, init is compiled at another level of optimisation."""
  task = make_task('convnet3', **DIGITS)
  key = KEY(3)
  jax.config.update('jax_disable_most_optimizations', False)
  alone = task.init(key)
  inside = jax.jit(lambda: task.init(key))()  # the key is a constant
  jax.config.update('jax_disable_most_optimizations', True)
  assert_same_bits(alone, inside)


def test_vgg9_has_the_dropout_of_the_paper():
  rates = []

  def watch(call, args, how, context):
    if isinstance(context.module, nn.Dropout) and not how['deterministic']:
      rates.append((context.module.rate, args[0].shape[1:]))
    return call(*args, **how)

  task = make_task('vgg9', **DIGITS)
  batch = Batch(jnp.ones((6, 8, 8, 1)), jnp.zeros(6, int), jnp.ones(6))
  params, key = jax.eval_shape(lambda: (task.init(KEY(0)), KEY(0)))
  with nn.intercept_methods(watch):
    jax.eval_shape(task.train_outputs, params, batch, key)
    jax.eval_shape(task.logits, params, batch.x, batch.mask)
  assert rates == [(0.05, (2, 2, 128)), (0.1, (256,)), (0.1, (512,))]


@pytest.mark.parametrize(
  'name, options, words',
  [
    ('simple_cnn', {}, 'simple_cnn: got (8, 8, 1), expected at least 16x16'),
    ('superfed_cnn', {}, 'expected 28x28, 32x32, 64x64 pixels'),
    ('convnet3', {'image_shape': (28, 28)}, '(height, width, channels)'),
    ('char_transformer', {}, 'expected (length,), of texts'),
    ('resnet9', {}, 'did you mean resnet'),
    ('convnet3', {'conv_impl': 'fast'}, "conv_impl: got 'fast'"),
    ('convnet3', {'precision': 'half'}, 'Choices: float32, tf32, mixed'),
    ('vit_tiny', {'image_shape': (30, 30, 3)}, 'multiples of 4, its patch'),
  ],
)
def test_errors_of_names_and_sizes(name, options, words):
  assert words in refused(lambda: make_task(name, **DIGITS | options))
