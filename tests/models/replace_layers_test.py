"""Modules that know nothing of the project give the same numbers, faster.

What has a rule has the original's numbers; what only looks so stays.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging
from helpers import KEY, normal
from jax import lax
from replaced import check, convolutions, layer

from fedjax_pfl.models import replace_layers as module
from fedjax_pfl.models.ops.batch_norm import masked_batch_norm
from fedjax_pfl.models.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
every_way = pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
KERNEL, IMAGES = (3, 3, 2, 2), (3, 4, 4, 2)


class PlainCNN(nn.Module):
  """As a user writes it: compact, SAME padding, dropout, an average pool."""

  @nn.compact
  def __call__(self, x, train=False):
    x = nn.relu(nn.Conv(8, (5, 5), param_dtype=float)(x))
    x = nn.max_pool(x, (2, 2), (2, 2))
    x = nn.max_pool(nn.Conv(8, (3, 3), strides=2, param_dtype=float)(x), (2, 2))
    x = nn.relu(x)
    x = nn.avg_pool(x, (2, 2), (1, 1), 'SAME')
    x = nn.Dropout(0.5, deterministic=not train)(x)
    return nn.Dense(3, param_dtype=float)(x.reshape(len(x), -1))


@pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
def test_flax_linen(conv_impl):
  net, x = PlainCNN(), normal(4, 17, 16, 3)

  def fn(params, x):
    return net.apply(params, x, train=True, rngs={'dropout': KEY(1)})

  program = check(fn, jax.jit(net.init)(KEY(0), x), x, conv_impl=conv_impl)
  assert bool(convolutions(program)) == (conv_impl != 'gemm')
  if conv_impl == 'gemm':
    assert 'reduce_window_max' not in program
    assert 'select_and_scatter' not in program


def line(kernel, x):
  """One spatial axis, as for sensors."""
  kernel = jnp.concatenate([kernel[0], kernel[1]])  # [6, 2, 2]
  y = lax.conv_general_dilated(
    x[:, 0], kernel, (2,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC')
  )
  return nn.max_pool(nn.relu(y), (3,), (2,), 'SAME')


def channels_first(kernel, x):  # x [B, C, H, W], as in haiku
  y = lax.conv_general_dilated(
    x.transpose(0, 3, 1, 2), kernel.transpose(3, 2, 0, 1), (2, 2),
    [(1, 2), (0, 1)], dimension_numbers=('NCHW', 'OIHW', 'NCHW'),
  )  # fmt: skip
  return jax.nn.relu(y + jnp.broadcast_to(kernel[0, 0, :, :1, None], y.shape))


def scanned(kernel, x):
  return lax.scan(lambda x, _: (layer(kernel, x), ()), x, None, 2)[0]


def rematerialised(kernel, x):
  return jax.checkpoint(lambda x: jax.nn.relu(layer(kernel, x)))(x)


def chosen(kernel, x):
  return lax.cond(x.sum() > 0, layer, lambda _, x: x, kernel, x)


def with_two_readers(kernel, x):
  y = layer(kernel, x)
  z = jax.nn.relu(y + kernel[0, 0, 0])
  return nn.max_pool(z, (2, 2), (2, 2)) + y[:, ::2, ::2] + z[:, ::2, ::2]


def with_a_call_of_nothing(kernel, x):
  return layer(kernel, x) + jax.jit(lambda: jnp.arange(2.0))()


FUNCTIONS = [
  line, channels_first, scanned, rematerialised, chosen, with_two_readers,
  with_a_call_of_nothing,
]  # fmt: skip


@pytest.mark.parametrize('fn', FUNCTIONS)
def test_convolutions_wherever_they_are(fn):
  program = check(fn, normal(*KERNEL), normal(*IMAGES))
  assert not convolutions(program) and 'reduce_window' not in program


def test_a_function_may_close_over_traced_arrays():
  kernel, x = normal(*KERNEL), normal(*IMAGES)
  plan = np.arange(3.0)  # beside the traced one, an array that has numbers

  def loss(replace):
    def of_kernel(kernel):
      fn = replace(lambda x: layer(kernel, x) * plan[:, None, None, None])
      return (fn(x) ** 2).sum() + (jax.vmap(fn)(x[None]) ** 2).sum()

    return jax.value_and_grad(of_kernel)

  want = jax.jit(loss(lambda fn: fn))(kernel)
  ours = jax.vmap(loss(lambda fn: replace_layers(fn, 'gemm')))
  many = jax.tree.map(lambda row: row[0], jax.jit(ours)(kernel[None]))
  jax.tree.map(np.testing.assert_allclose, many, want)


def test_what_stays_is_named_once(caplog, monkeypatch):
  module._log_once.cache_clear()
  monkeypatch.setattr(logging.get_absl_logger(), 'propagate', True)
  how = {'dimension_numbers': ('NHWC', 'HWIO', 'NHWC'), 'rhs_dilation': (2, 2)}

  def fn(kernel, x):
    return sum(
      lax.conv_general_dilated(x, kernel, (1, 1), 'SAME', **how)
      for _ in range(2)
    )

  args = normal(*KERNEL), normal(*IMAGES)
  program = str(jax.make_jaxpr(replace_layers(fn, 'gemm'))(*args))
  assert convolutions(program) == 2
  assert [record.getMessage() for record in caplog.records] == [
    'conv_general_dilated of float64[3,4,4,2] and float64[3,3,2,2] stays as '
    'it is, and may be slow on a CPU'
  ]


def test_a_relu_of_the_users_own_stays():
  """Whatever it computes, under the name of jax's ReLU."""

  def relu(x):
    return jnp.clip(x, 0, 1)

  own = jax.custom_jvp(jax.jit(relu))
  own.defjvp(lambda x, dx: (own(*x), (x[0] > -1) * dx[0]))
  check(own, 2 * normal(9))


def norm(x, scale, bias):
  return masked_batch_norm(x, scale, bias, jnp.array([1.0, 1, 0]))


def mapped_norm(x, scale, bias):
  return jax.vmap(norm, (0, None, None))(x.reshape(2, 3, 2, 2, 2), scale, bias)


def skip_outside_of_the_mask(x, scale, bias):
  """It is fused only where it is zero there: here it is not."""
  return jax.nn.relu(norm(x[:3], scale, bias) + 1 + x[3:] ** 2)


@pytest.mark.parametrize('fn', [mapped_norm, skip_outside_of_the_mask])
def test_a_norm_that_is_not_ours_alone_stays(fn):
  check(fn, normal(6, 2, 2, 2), normal(2), normal(2))


def normed(kernel, x):
  scale = jnp.ones(kernel.shape[-1])
  y = masked_batch_norm(layer(kernel, x), scale, scale, jnp.ones(len(x)))
  return nn.max_pool(jax.nn.relu(y), (2, 2), (2, 2))


@every_way
@pytest.mark.parametrize(
  'fn, images, window',
  [
    (normed, (0, 4, 4, 2), (3, 3, 2, 4)),
    (lambda k, x: layer(k, x, 'VALID'), (2, 3, 3, 2), (5, 5, 2, 4)),
  ],
)
def test_arrays_without_numbers(fn, images, window, conv_impl):
  """Empty batches, and windows that are larger than the image."""
  check(fn, normal(*window), jnp.zeros(images), conv_impl=conv_impl)


@pytest.mark.parametrize('window', [(1, 3, 3, 1), (1, 1, 3, 3)])
def test_windows_that_overlap_have_one_winner(window):
  """Of images in both orders: the first of many equal pixels."""

  def fn(x):
    strides = [min(side, 2) for side in window]
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, 'SAME')

  assert 'reduce_window' not in check(fn, jnp.round(normal(2, 5, 6, 7)))
  x = normal(1, 5, 6, 7).at[0, 2, 3, 4].set(jnp.nan)
  np.testing.assert_array_equal(replace_layers(fn, 'gemm')(x), fn(x))


def test_whole_numbers_are_exact():
  """Winograd's tiles would have fractions."""

  def fn(x):
    kernel = jnp.stack([x[0, :3, :3]] * 16, -1)
    return layer(kernel, x)

  x = (4 * normal(1, 8, 8, 16)).astype('int32')
  np.testing.assert_array_equal(replace_layers(fn, 'gemm')(x), fn(x))
