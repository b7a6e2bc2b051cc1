"""The precision that was asked for is that of every product in the program."""

import re

import jax
import jax.numpy as jnp
import pytest

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.core.types import Batch
from fedjax_pfl.models.ops import batch_norm, separable
from fedjax_pfl.models.precision import PRECISIONS
from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
MODEL = {'image_shape': (8, 8, 1), 'num_classes': 3}


def batch():
  x = jax.random.normal(jax.random.key(1), (6, 8, 8, 1))
  return Batch(x, jnp.arange(6) % 3, jnp.ones(6))


def program(conv_impl, precision):
  """Return the lowered gradient of a convolutional network."""
  task = make_task(
    'convnet3', **MODEL, conv_impl=conv_impl, precision=precision
  )
  params = jax.eval_shape(task.init, jax.random.key(0))
  grad = jax.jit(jax.grad(task.loss))
  return grad.lower(params, batch(), jax.random.key(0)).as_text()


def precisions(text):
  """Return the precisions of all convolutions and products of a program."""
  lines = re.findall(r'.*(?:dot_general|stablehlo\.convolution).*', text)
  return {*re.findall(r'\b(DEFAULT|HIGHEST|HIGH)\b', '\n'.join(lines))}


@pytest.mark.parametrize('conv_impl', ['lax', 'fused', 'gemm'])
def test_products_have_the_precision(conv_impl):
  float32, tf32, mixed = (
    program(conv_impl, precision) for precision in PRECISIONS
  )
  assert precisions(float32) == {'HIGHEST'}
  # Sums that are written as products are never rounded.
  sums = {'HIGHEST'} if conv_impl == 'gemm' else set()
  assert precisions(tf32) == {'HIGH'} | sums
  assert 'bf16' not in float32 + tf32
  products = re.findall(r'stablehlo\.(?:convolution|dot_general).*', mixed)
  big = [line for line in products if 'HIGHEST' not in line]
  assert big and all('bf16' in line for line in big)


@pytest.mark.parametrize('conv_impl', ['lax', 'fused', 'gemm'])
def test_mixed_is_float32_outside(conv_impl):
  exact, task = (
    make_task('convnet3', **MODEL, conv_impl=conv_impl, precision=precision)
    for precision in ('float32', 'mixed')
  )
  params, key = task.init(jax.random.key(0)), jax.random.key(0)
  value, grads = jax.jit(jax.value_and_grad(task.loss))(params, batch(), key)
  outputs = jax.jit(task.train_outputs)(params, batch(), key)
  for leaf in jax.tree.leaves((params, value, grads, outputs)):
    assert leaf.dtype == jnp.float32
  want = jax.jit(exact.loss)(params, batch(), key)
  assert 0 < abs(float(value - want)) < 0.05


@pytest.mark.parametrize(
  ('platform', 'precision', 'number'),
  [('gpu', 'float32', 1), ('gpu', 'mixed', 0), ('cpu', 'float32', 0)],
)
def test_gradients_are_alone(platform, precision, number):
  """On a GPU: a barrier behind them."""
  with compiling_for(platform):
    text = program('lax', precision)
  barriers = re.findall(r'optimization_barrier (.*) :', text)
  whole = [line for line in barriers if ', ' in line]  # not of one image
  assert len(whole) == number


CAST = re.compile(
  r'(%\w+) = stablehlo\.convert (%\w+) : '
  r'\(tensor<(\d+x\S*?)(f32|bf16)>\) -> tensor<\S*?x(f32|bf16)>'
)


def test_images_are_written_in_bfloat16():
  """XLA leaves out float32 -> bfloat16 -> float32, and writes twice as much."""

  def loss(x, scale, kernel):
    mask = jnp.ones(2, bool)
    for _ in range(2):
      x = separable.norm_depthwise(x, scale, scale, mask, kernel, 1)
      x = batch_norm.norm(x, x, scale, scale, mask, True)
    return batch_norm.norm_pool(x, scale, scale, mask, 2).sum()

  shapes = (2, 4, 4, 3), (3,), (3, 3, 3)
  arguments = [jnp.ones(shape, jnp.bfloat16) for shape in shapes]
  lowered = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*arguments)
  found = 0
  for function in lowered.as_text().split('func.func'):
    casts = CAST.findall(function)
    narrow = {name for name, _, _, _, to in casts if to == 'bf16'}
    for _, given, shape, _, to in casts:
      if shape == '2x4x4x3x':
        found += 1
        assert not (to == 'f32' and given in narrow), (given, shape)
  assert found > 10
