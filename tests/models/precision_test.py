"""The precision that was asked for is that of every product in the program."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, long, normal

from fedjax_pfl.core.types import Batch
from fedjax_pfl.models.module_task import PRECISIONS
from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
BATCH = Batch(
  normal(6, 8, 8, 1), np.arange(6, dtype=np.int32) % 3, np.ones(6, np.float32)
)
every_way = pytest.mark.parametrize('conv_impl', ['lax', 'fused', 'gemm'])


def task_of(conv_impl, precision):
  how = {'conv_impl': conv_impl, 'precision': precision}
  return make_task('convnet3', image_shape=(8, 8, 1), num_classes=3, **how)


def program(conv_impl, precision):
  """Return the lowered gradient of a convolutional network."""
  task = task_of(conv_impl, precision)
  params = jax.eval_shape(task.init, jax.random.key(0))
  grad = jax.jit(jax.grad(task.loss))
  return grad.lower(params, BATCH, jax.random.key(0)).as_text()


def products(text):
  """Return the lines of all convolutions and products of a program."""
  return re.findall(r'.*(?:dot_general|stablehlo\.convolution).*', text)


@every_way
def test_products_have_the_precision(conv_impl):
  float32, tf32, mixed = (program(conv_impl, name) for name in PRECISIONS)
  names = [
    {*re.findall(r'\b(DEFAULT|HIGHEST|HIGH)\b', '\n'.join(products(text)))}
    for text in (float32, tf32)
  ]
  # Sums that are written as products are never rounded.
  sums = {'HIGHEST'} if conv_impl == 'gemm' else set()
  assert names == [{'HIGHEST'}, {'HIGH'} | sums]
  assert 'bf16' not in float32 + tf32
  big = [line for line in products(mixed) if 'HIGHEST' not in line]
  assert big and all('bf16' in line for line in big)


@pytest.mark.parametrize('conv_impl', [long('lax'), 'gemm'])
def test_mixed_is_float32_outside(conv_impl):
  exact, task = (task_of(conv_impl, name) for name in ('float32', 'mixed'))
  params, key = task.init(jax.random.key(0)), jax.random.key(0)
  value, grads = jax.jit(jax.value_and_grad(task.loss))(params, BATCH, key)
  outputs = jax.eval_shape(task.train_outputs, params, BATCH, key)
  for leaf in jax.tree.leaves((params, value, grads, outputs)):
    assert leaf.dtype == jnp.float32
  want = jax.jit(exact.loss)(params, BATCH, key)
  assert 0 < abs(float(value - want)) < 0.05
  features, logits = jax.jit(
    lambda p, x, mask: (task.features(p, x, mask), task.logits(p, x, mask))
  )(params, BATCH.x, BATCH.mask)
  assert_same_bits(task.classify(params, features), logits)
