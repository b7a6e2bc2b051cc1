"""Modules that know nothing of the project give the same numbers, faster.

What has a rule has the original's numbers; what only looks so stays.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging
from helpers import KEY
from jax import lax
from replaced import check, convolutions, layer, normal

from fedjax_pfl.models.ops import replace_layers as module
from fedjax_pfl.models.ops.batch_norm import masked_batch_norm
from fedjax_pfl.models.ops.replace_layers import replace_layers

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


@pytest.mark.parametrize('conv_impl', ['gemm', 'fused', 'lax'])
def test_flax_linen(conv_impl):
  net, x = PlainCNN(), normal(4, 17, 16, 3)

  def fn(params, x):
    return net.apply(params, x, train=True, rngs={'dropout': KEY(1)})

  program = check(fn, net.init(KEY(0), x), x, conv_impl=conv_impl)
  assert bool(convolutions(program)) == (conv_impl != 'gemm')
  if conv_impl == 'gemm':
    assert 'reduce_window' not in program
    assert 'select_and_scatter' not in program


def line(kernel, x):
  """One spatial axis, as for sensors."""
  kernel = jnp.concatenate([kernel[0], kernel[1]])  # [6, 2, 2]
  y = lax.conv_general_dilated(
    x[:, 0], kernel, (2,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC')
  )
  return nn.max_pool(nn.relu(y), (3,), (2,), 'SAME')


def depthwise(kernel, x):
  """Between ReLUs, without a bias."""
  y = lax.conv_general_dilated(
    nn.relu(layer(kernel, x)), kernel[:, :, :1], (1, 1), 'SAME',
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'), feature_group_count=2,
  )  # fmt: skip
  return nn.max_pool(nn.relu(y), (2, 2), (2, 2))


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


def jitted(kernel, x):
  return jax.jit(layer)(kernel, jax.jit(layer)(kernel, x))


def mapped(kernel, x):
  return jax.vmap(lambda row: layer(kernel, row[None])[0])(x)


def with_two_readers(kernel, x):
  y = layer(kernel, x)
  z = jax.nn.relu(y + kernel[0, 0, 0])
  return nn.max_pool(z, (2, 2), (2, 2)) + y[:, ::2, ::2] + z[:, ::2, ::2]


@pytest.mark.parametrize(
  'fn',
  [
    line,
    depthwise,
    channels_first,
    scanned,
    rematerialised,
    chosen,
    jitted,
    mapped,
    with_two_readers,
  ],
)
def test_convolutions_wherever_they_are(fn):
  program = check(fn, normal(*KERNEL), normal(*IMAGES))
  assert not convolutions(program) and 'reduce_window' not in program


def test_inside_a_loop_without_gradient():
  def fn(kernel, x):
    def body(state):
      return state[0] + 1, layer(kernel, state[1])

    return lax.while_loop(lambda state: state[0] < 2, body, (0, x))[1]

  args = normal(*KERNEL), normal(*IMAGES)
  got = jax.jit(replace_layers(fn, 'gemm'))
  np.testing.assert_allclose(got(*args), fn(*args), atol=1e-12)
  assert not convolutions(str(jax.make_jaxpr(got)(*args)))


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


def test_a_function_is_traced_once_for_its_shapes():
  """Its arguments by place or by name."""
  times = []

  def fn(kernel, x, power=1):
    times.append(1)
    return layer(kernel, x) ** power

  fast = replace_layers(fn, 'gemm')
  args = normal(*KERNEL), normal(*IMAGES)
  jax.make_jaxpr(jax.grad(lambda *args: fast(*args).sum()))(*args)
  jax.make_jaxpr(fast)(*args)
  assert len(times) == 1
  found = fast(x=args[1], power=2, kernel=args[0])
  np.testing.assert_allclose(found, layer(*args) ** 2)


@pytest.mark.parametrize(
  'options',
  [
    {'rhs_dilation': (2, 2)},
    {'feature_group_count': 2},
    {'window_strides': (1, 2)},
    {'lhs_dilation': (2, 2)},
    {'padding': ((-1, 1), (0, 0))},
    {'preferred_element_type': jnp.float32},
  ],
  ids=str,
)
def test_what_stays_is_named_once(options, caplog, monkeypatch):
  module._log_once.cache_clear()
  monkeypatch.setattr(logging.get_absl_logger(), 'propagate', True)
  how = {'window_strides': (1, 1), 'padding': ((0, 0), (0, 0))}
  how |= {'dimension_numbers': ('NHWC', 'HWIO', 'NHWC')} | options

  def fn(kernel, x):
    return sum(lax.conv_general_dilated(x, kernel, **how) for _ in range(2))

  inputs = 2 // options.get('feature_group_count', 1)
  shapes = (3, 3, inputs, 2), (1, 6, 6, 2)
  kernel, x = (normal(*shape).astype(jnp.bfloat16) for shape in shapes)
  program = str(jax.make_jaxpr(replace_layers(fn, 'gemm'))(kernel, x))
  assert convolutions(program) == 2
  assert [record.getMessage() for record in caplog.records] == [
    'conv_general_dilated of bfloat16[1,6,6,2] and '
    f'bfloat16[3,3,{inputs},2] stays as it is, and may be slow on a CPU'
  ]


def own_relu(fn, slope):
  """Return fn, whatever it computes, under the name of jax's ReLU."""
  fn.__name__ = 'relu'
  own = jax.custom_jvp(jax.jit(fn))
  own.defjvp(lambda x, dx: (own(*x), slope(*x) * dx[0]))
  return own


@pytest.mark.parametrize(
  'relu',
  [
    own_relu(lambda x: jnp.clip(x, 0, 1), lambda x: (x > -1) & (x < 2)),
    own_relu(jax.nn.relu.fun, lambda x: jnp.where(x > 0, 1, 0.1)),
  ],
)
def test_a_relu_of_the_users_own_stays(relu):
  check(relu, 2 * normal(9))


def test_the_relu_of_jax_is_known():
  """Pooling comes first: its pixels alone go through the ReLU."""

  def fn(x):
    return nn.max_pool(jax.nn.relu(x), (2, 2), (2, 2))

  program = check(fn, normal(1, 4, 4, 1), conv_impl='lax')
  assert 'f64[1,2,2,1] = max' in program
  assert 'f64[1,4,4,1] = max' not in program


def norm(x, scale, bias):
  return masked_batch_norm(x, scale, bias, jnp.array([1.0, 1, 0]))


def mapped_norm(x, scale, bias):
  return jax.vmap(norm, (0, None, None))(x.reshape(2, 3, 2, 2, 2), scale, bias)


def norm_gradient(x, scale, bias):
  return jax.grad(lambda x: (norm(x, scale, bias) ** 3).sum())(x[:3])


def own_norm(x, scale, bias):
  def masked_batch_norm(x, scale, bias, mask):
    return scale * x / jnp.sqrt(x.var((0, 1, 2)) + 0.1) + bias + 0 * mask[0]

  return jax.jit(masked_batch_norm)(x, scale, bias, jnp.ones(6))


def norm_beside_one_of_means(x, scale, bias):
  means = x.mean((1, 2), keepdims=True)
  y, z = (norm(y[:3], scale, bias) for y in (x, means))
  return jax.nn.relu(y + z)


def skip_outside_of_the_mask(x, scale, bias):
  """It is fused only where it is zero there: here it is not."""
  return jax.nn.relu(norm(x[:3], scale, bias) + 1 + x[3:] ** 2)


@pytest.mark.parametrize(
  'fn',
  [
    mapped_norm,
    norm_gradient,
    own_norm,
    norm_beside_one_of_means,
    skip_outside_of_the_mask,
  ],
)
def test_a_norm_that_is_not_ours_alone_stays(fn):
  check(fn, normal(6, 2, 2, 2), normal(2), normal(2))


def pooled(kernel, x):
  y = jax.nn.relu(layer(kernel, x) + kernel[0, 0, 0])
  return nn.max_pool(y, (2, 2), (2, 2))


def normed(kernel, x):
  scale = jnp.ones(kernel.shape[-1])
  y = masked_batch_norm(layer(kernel, x), scale, scale, jnp.ones(len(x)))
  return jax.nn.relu(y)


def too_large(kernel, x):
  return layer(kernel, x, 'VALID')


@every_way
@pytest.mark.parametrize(
  'fn, images, window',
  [
    (pooled, (0, 8, 8, 3), (5, 5, 3, 4)),
    (pooled, (0, 8, 8, 16), (3, 3, 16, 16)),
    (normed, (0, 4, 4, 2), (3, 3, 2, 4)),
    (too_large, (2, 3, 3, 2), (5, 5, 2, 4)),
    (lambda _, x: nn.max_pool(x, (3, 3)), (2, 1, 4, 2), (1,)),
  ],
)
def test_arrays_without_numbers(fn, images, window, conv_impl):
  """Empty batches, and windows that are larger than the image."""
  check(fn, normal(*window), jnp.zeros(images), conv_impl=conv_impl)


@pytest.mark.parametrize(
  'window, strides, padding',
  [
    ((1, 3, 3, 1), (1, 2, 2, 1), 'SAME'),
    ((1, 2, 3, 1), (1, 1, 1, 1), 'VALID'),
    ((1, 1, 3, 3), (1, 1, 2, 2), 'SAME'),
    ((1, 3, 1, 1), (1, 2, 1, 1), 'VALID'),
  ],
)
def test_windows_that_overlap_have_one_winner(window, strides, padding):
  """Of images in both orders, and of lines: the first of many equal pixels."""

  def fn(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)

  assert 'reduce_window' not in check(fn, jnp.round(normal(2, 5, 6, 7)))
  x = normal(1, 5, 6, 7).at[0, 2, 3, 4].set(jnp.nan)
  np.testing.assert_array_equal(replace_layers(fn, 'gemm')(x), fn(x))


def of_whole_numbers(x):
  """Winograd's tiles would have fractions."""
  kernel = jnp.stack([x[0, :3, :3]] * 4, -1)
  y = layer(jnp.concatenate([kernel] * 4, -1), x)
  return lax.reduce_window(
    y, np.int32(-(2**31)), lax.max, (1, 3, 3, 1), (1, 2, 2, 1), 'SAME'
  )


def test_whole_numbers_are_exact():
  x = (4 * normal(1, 8, 8, 16)).astype('int32')
  want = of_whole_numbers(x)
  got = replace_layers(of_whole_numbers, 'gemm')(x)
  np.testing.assert_array_equal(got, want)
