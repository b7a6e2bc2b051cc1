"""Running statistics of BatchNorm are PyTorch's, however it is computed."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, TRAIN, long
from norm_task import norm_task

from fedjax_pfl.core import norm_stats
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.core.types import Batch, ClientData

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
# source: torch.nn.BatchNorm2d 2.13, float64, of `Net` with these numbers: two
# batches of 4 and 3, SGD of 0.1 with momentum 0.9 and weight decay 0.01.
MEAN = [0.15836330696949957, 0.17073643412404244]
VAR = [0.8634062280621353, 0.8759389216522482]
SCALE = [0.9314570400416201, 0.9444271407757019]
LOGITS = [
  [0.12578630602869445, -0.29876570908613],
  [0.6469089184300644, -0.2979250943691608],
]


def numbers(*shape, phase=0):
  return jnp.sin(phase + jnp.arange(np.prod(shape), dtype=float)).reshape(shape)


@pytest.mark.parametrize('how', ['lax', 'gemm', 'fused'])
def test_two_steps_and_a_test_are_those_of_pytorch(how):
  task = norm_task(conv_impl=how)
  params = task.init(KEY(0))
  params['conv'] = {'kernel': numbers(3, 3, 1, 2), 'bias': numbers(2, phase=1)}
  params['head'] = {'kernel': numbers(8, 2, phase=2), 'bias': jnp.zeros(2)}
  x, y = numbers(7, 4, 4, 1, phase=3), jnp.array([0, 1, 1, 0, 1, 0, 0])
  data = ClientData(x, y, jnp.arange(7), jnp.array(7))
  rate = jnp.ones(()) * 0.1
  train = TRAIN._replace(
    epochs=1, shuffle=False, learning_rate=lambda clock: rate
  )
  fit = jax.jit(partial(train.fit, task))
  params, _ = fit(params, data, KEY(0), jnp.zeros((), int))
  want = {'scale': SCALE, norm_stats.MEAN: MEAN, norm_stats.VAR: VAR}
  for name, value in want.items():
    np.testing.assert_allclose(params['bn'][name], value, rtol=1e-9)
  mask, logits = jnp.ones(2), jax.jit(task.logits)
  np.testing.assert_allclose(logits(params, x[:2], mask), LOGITS)
  # Of an example alone, and beside padding, they are the same.
  alone = logits(params, x[:2], mask.at[1].set(0))[:1]
  np.testing.assert_allclose(alone, LOGITS[:1])


@pytest.mark.parametrize(
  ('how', 'platform'), [('gemm', 'cpu'), ('fused', 'cpu'), long('fused', 'gpu')]
)
def test_each_way_of_computing_gives_the_same_statistics(how, platform):
  x, mask = numbers(5, 8, 8, 3), jnp.array([1.0, 1, 1, 1, 0])
  batch = Batch(x, jnp.zeros(5, int), mask)

  def slopes(how):
    task = norm_task((8, 8, 3), deep=True, conv_impl=how)
    params = task.init(KEY(0))
    return jax.jit(jax.grad(task.loss))(params, batch, KEY(1))

  want = slopes('lax')
  with compiling_for(platform):
    got = slopes(how)
  assert len(norm_stats.names_of(got)) == 10
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_half_precision_rounds_no_average():
  task = norm_task(precision='mixed')
  params = jax.tree.map(lambda leaf: leaf.astype('float32'), task.init(KEY(0)))
  params['bn'][norm_stats.MEAN] = fine = jnp.full(2, 1.0001, 'float32')
  batch = Batch(jnp.zeros((2, 4, 4, 1)), jnp.zeros(2, int), jnp.ones(2))
  slopes = jax.jit(jax.grad(task.loss))(params, batch, KEY(0))
  slope = slopes['bn'][norm_stats.MEAN]
  bias = params['conv']['bias'].astype('bfloat16').astype('float32')
  np.testing.assert_allclose(slope, fine - bias, rtol=1e-6)
