"""Modules that know nothing of the project give the same numbers, faster."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging
from flax import nnx
from jax import lax

from fedjax_pfl.models.ops import layers, rules
from fedjax_pfl.models.ops import replace_layers as module
from fedjax_pfl.models.ops.batch_norm import masked_batch_norm
from fedjax_pfl.models.ops.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(autouse=True)
def double():
  with jax.enable_x64(True):
    yield


def normal(*shape):
  return jnp.asarray(np.random.default_rng(0).normal(size=shape))


def check(fn, *args, conv_impl='gemm'):
  """Assert that values and gradients are those of fn; return the program."""

  def value(fn):
    def run(*args):
      y = fn(*args)
      return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

    order = range(len(args))
    return jax.jit(jax.value_and_grad(run, tuple(order), has_aux=True))

  replaced = value(replace_layers(fn, conv_impl))
  want, got = value(fn)(*args), replaced(*args)
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
  return str(jax.make_jaxpr(replaced)(*args))


def convolutions(program):
  return len(re.findall(r'= conv_general_dilated\[', program))


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
  params = net.init(jax.random.key(0), x)

  def fn(params, x):
    rngs = {'dropout': jax.random.key(1)}
    return net.apply(params, x, train=True, rngs=rngs)

  program = check(fn, params, x, conv_impl=conv_impl)
  assert bool(convolutions(program)) == (conv_impl != 'gemm')
  if conv_impl == 'gemm':
    assert 'reduce_window' not in program
    assert 'select_and_scatter' not in program


def test_flax_nnx():
  class Net(nnx.Module):
    def __init__(self, rngs):
      self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs, param_dtype=float)
      self.head = nnx.Linear(4 * 16, 3, rngs=rngs, param_dtype=float)

    def __call__(self, x):
      x = nnx.max_pool(nnx.relu(self.conv(x)), (2, 2), (2, 2))
      return self.head(x.reshape(len(x), -1))

  graph, params = nnx.split(Net(nnx.Rngs(0)))
  program = check(
    lambda params, x: nnx.merge(graph, params)(x), params, normal(2, 8, 8, 3)
  )
  assert not convolutions(program)


def test_as_haiku_writes_it():
  """Other dimension numbers, and a bias that is broadcast to the image."""

  def fn(kernel, bias, x):  # x [B, C, H, W]
    numbers = ('NCHW', 'OIHW', 'NCHW')
    y = lax.conv_general_dilated(
      x, kernel, (2, 2), [(1, 2), (0, 1)], dimension_numbers=numbers
    )
    y = y + jnp.broadcast_to(bias[:, None, None], y.shape)
    z = lax.conv_general_dilated(
      y.transpose(0, 2, 3, 1),
      kernel.transpose(2, 3, 0, 1),
      (1, 1),
      'SAME',
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    )
    return jax.nn.relu(z + jnp.broadcast_to(bias[:3], z.shape))

  program = check(fn, normal(4, 3, 2, 3), normal(4), normal(2, 3, 7, 6))
  assert not convolutions(program)


def test_a_line_of_numbers():
  """One spatial axis, as for sensors."""

  class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
      x = nn.relu(nn.Conv(4, (5,), strides=2, param_dtype=float)(x))
      return nn.max_pool(x, (3,), (2,), 'SAME')

  net, x = Net(), normal(2, 15, 3)
  program = check(net.apply, net.init(jax.random.key(0), x), x)
  assert not convolutions(program)
  assert 'reduce_window' not in program


def layer(kernel, x):
  return lax.conv_general_dilated(
    x, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )


def valid(kernel, x):
  return lax.conv_general_dilated(
    x, kernel, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )


def pooled(kernel, x):
  return nn.max_pool(
    jax.nn.relu(layer(kernel, x) + kernel[0, 0, 0]), (2, 2), (2, 2)
  )


def normed(kernel, x):
  scale = jnp.ones(kernel.shape[-1])
  y = masked_batch_norm(layer(kernel, x), scale, scale, jnp.ones(len(x)))
  return jax.nn.relu(y)


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


@pytest.mark.parametrize(
  'fn', [scanned, rematerialised, chosen, jitted, mapped]
)
def test_inside_other_equations(fn):
  program = check(fn, normal(3, 3, 2, 2), normal(3, 4, 4, 2))
  assert not convolutions(program)


def test_inside_a_loop_without_gradient():
  def fn(kernel, x):
    def body(state):
      return state[0] + 1, layer(kernel, state[1])

    return lax.while_loop(lambda state: state[0] < 2, body, (0, x))[1]

  args = normal(3, 3, 2, 2), normal(3, 4, 4, 2)
  got = jax.jit(replace_layers(fn, 'gemm'))
  np.testing.assert_allclose(got(*args), fn(*args), atol=1e-12)
  assert not convolutions(str(jax.make_jaxpr(got)(*args)))


def test_a_convolution_with_two_readers():
  def fn(kernel, bias, x):
    y = layer(kernel, x)
    z = jax.nn.relu(y + bias)
    return nn.max_pool(z, (2, 2), (2, 2)) + y[:, ::2, ::2] + z[:, ::2, ::2]

  check(fn, normal(3, 3, 2, 2), normal(2), normal(3, 4, 4, 2))


def test_a_skip_with_rows_outside_of_the_mask_is_added_as_written():
  """It is fused only where it is zero there: here it is not."""
  mask = jnp.array([1.0, 0])
  affine = {'scale': jnp.ones(2), 'bias': jnp.zeros(2)}

  def fn(x, skip):
    y = layers.BatchNorm().apply({'params': affine}, x, mask)
    return jax.nn.relu(y + skip)

  check(fn, normal(2, 4, 4, 2), 1 + normal(2, 4, 4, 2) ** 2)


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
    own_relu(lambda x: jnp.maximum(x, 0), lambda x: jnp.where(x > 0, 1, 0.1)),
    own_relu(jax.nn.relu.fun, lambda x: jnp.where(x > 0, 1, 0.1)),
  ],
)
def test_a_relu_of_the_users_own_stays(relu):
  check(relu, 2 * normal(9))


def test_the_relu_of_jax_is_known():
  rules._origin_of_relu.cache_clear()
  plain, mapped = (
    jax.make_jaxpr(fn)(jnp.ones(2)).eqns[0]
    for fn in (jax.nn.relu, jax.vmap(jax.nn.relu))
  )
  assert rules._origin(plain) == rules._origin(mapped)
  assert rules._origin(plain) == rules._origin_of_relu()
  assert None not in rules._origin_of_relu()


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


@pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
@pytest.mark.parametrize('fn', [mapped_norm, norm_gradient, own_norm])
def test_a_norm_that_is_not_ours_alone_stays(fn, conv_impl):
  args = normal(6, 2, 2, 2), normal(2), normal(2)
  check(fn, *args, conv_impl=conv_impl)


def test_a_function_may_close_over_traced_arrays():
  kernel, x = normal(3, 3, 2, 2), normal(3, 4, 4, 2)
  plan = np.arange(3.0)  # beside the traced one, an array that has numbers

  def loss(replace):
    def of_kernel(kernel):
      fn = replace(lambda x: layer(kernel, x) * plan[:, None, None, None])
      return (fn(x) ** 2).sum() + (jax.vmap(fn)(x[None]) ** 2).sum()

    return jax.value_and_grad(of_kernel)

  want = jax.jit(loss(lambda fn: fn))(kernel)
  ours = loss(lambda fn: replace_layers(fn, 'gemm'))
  many = jax.tree.map(lambda row: row[0], jax.vmap(ours)(kernel[None]))
  for got in (jax.jit(ours)(kernel), many):
    jax.tree.map(np.testing.assert_allclose, got, want)


def test_arguments_by_name():
  fn = replace_layers(lambda x, kernel, power=1: layer(kernel, x) ** power)
  x, kernel = normal(3, 4, 4, 2), normal(3, 3, 2, 2)
  want = layer(kernel, x) ** 2
  np.testing.assert_allclose(fn(x, power=2, kernel=kernel), want)


@pytest.mark.parametrize(
  'fn, images, window',
  [
    (pooled, (0, 8, 8, 3), (5, 5, 3, 4)),
    (pooled, (0, 8, 8, 16), (3, 3, 16, 4)),
    (pooled, (0, 8, 8, 2), (3, 3, 2, 4)),
    (normed, (0, 4, 4, 2), (3, 3, 2, 4)),
    (valid, (2, 3, 3, 2), (5, 5, 2, 4)),
    (lambda _, x: nn.max_pool(x, (3, 3)), (2, 1, 4, 2), (1,)),
    (lambda _, x: nn.avg_pool(x, (3, 3)), (2, 1, 4, 2), (1,)),
  ],
)
@pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
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

  program = check(fn, jnp.round(normal(2, 5, 6, 7)))
  assert 'reduce_window' not in program
  x = normal(1, 5, 6, 7).at[0, 2, 3, 4].set(jnp.nan)
  np.testing.assert_array_equal(replace_layers(fn, 'gemm')(x), fn(x))


@pytest.mark.parametrize('dtype, least', [('int32', -(2**31)), (bool, False)])
def test_pooling_of_whole_numbers(dtype, least):
  def fn(x):
    least_of = np.asarray(least, dtype)
    sizes = (1, 3, 3, 1), (1, 2, 2, 1)
    return lax.reduce_window(x, least_of, lax.max, *sizes, 'SAME')

  x = (normal(2, 5, 5, 1) - 2).astype(dtype)
  np.testing.assert_array_equal(replace_layers(fn, 'gemm')(x), fn(x))


def test_convolutions_of_whole_numbers_are_exact():
  """Winograd's tiles have fractions."""
  kernel, x = (
    (4 * normal(*shape)).astype(jnp.int32)
    for shape in ((3, 3, 16, 16), (1, 8, 8, 16))
  )
  got = replace_layers(layer, 'gemm')(kernel, x)
  np.testing.assert_array_equal(got, layer(kernel, x))


def test_a_convolution_without_spatial_axes():
  def fn(kernel, x):
    return lax.conv_general_dilated(x, kernel, (), ())

  check(fn, normal(5, 3), normal(2, 3))


@pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
def test_a_depthwise_convolution_between_relus_without_a_bias(conv_impl):
  class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
      x = nn.relu(nn.Conv(4, (3, 3), param_dtype=float)(x))
      how = {'feature_group_count': 4, 'use_bias': False, 'param_dtype': float}
      x = nn.relu(nn.Conv(4, (3, 3), **how)(x))
      return nn.max_pool(x, (2, 2), (2, 2))

  net, x = Net(), normal(2, 6, 6, 1)
  check(net.apply, net.init(jax.random.key(0), x), x, conv_impl=conv_impl)


@pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
def test_a_norm_of_pooled_images_beside_one_of_the_images(conv_impl):
  mask, scale = jnp.array([1.0, 1, 0]), jnp.array([1.0, -2])

  def fn(x):
    means = x.mean((1, 2), keepdims=True)
    y, z = (masked_batch_norm(y, scale, scale, mask) for y in (x, means))
    return jax.nn.relu(y + z)

  check(fn, normal(3, 4, 4, 2), conv_impl=conv_impl)


def test_what_stays_is_named_once(caplog, monkeypatch):
  module._log_once.cache_clear()
  monkeypatch.setattr(logging.get_absl_logger(), 'propagate', True)

  def fn(kernel, x):
    def dilated(x):
      return lax.conv_general_dilated(
        *(x, kernel, (1, 1), 'SAME'),
        rhs_dilation=(2, 2),
        dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
      )

    return dilated(dilated(x))

  program = check(fn, normal(3, 3, 2, 2), normal(1, 6, 6, 2))
  assert convolutions(program)
  said = [record.getMessage() for record in caplog.records]
  sentence = (
    'A convolution with a dilated kernel stays as it is, and may be slow on a '
    'CPU'
  )
  assert said == [sentence]


@pytest.mark.parametrize(
  'options, reason',
  [
    ({'feature_group_count': 2}, '2 groups, kernel 3x3x1x2'),
    ({'window_strides': (1, 2)}, r'strides \(1, 2\)'),
    ({'lhs_dilation': (2, 2)}, 'a dilated image'),
    ({'padding': ((-1, 1), (0, 0))}, 'negative padding'),
    ({'preferred_element_type': jnp.float32}, 'a result of another dtype'),
  ],
)
def test_reasons(options, reason, monkeypatch):
  said = []
  monkeypatch.setattr(module, '_log_once', said.append)
  groups = options.get('feature_group_count', 1)
  how = {
    'window_strides': (1, 1),
    'padding': ((0, 0), (0, 0)),
    'dimension_numbers': ('NHWC', 'HWIO', 'NHWC'),
  }

  def fn(kernel, x):
    return lax.conv_general_dilated(x, kernel, **how | options)

  kernel = normal(3, 3, 4 // groups // groups if groups > 1 else 2, 2)
  x = normal(1, 6, 6, kernel.shape[2] * groups)
  kernel, x = kernel.astype(jnp.bfloat16), x.astype(jnp.bfloat16)
  jax.make_jaxpr(replace_layers(fn, 'gemm'))(kernel, x)
  assert said
  assert re.search(reason, said[0])


def test_a_function_is_traced_once_for_its_shapes():
  times = []

  def fn(kernel, x):
    times.append(1)
    return layer(kernel, x)

  fast = replace_layers(fn, 'gemm')
  args = normal(3, 3, 2, 2), normal(3, 4, 4, 2)
  jax.make_jaxpr(jax.grad(lambda *args: fast(*args).sum()))(*args)
  jax.make_jaxpr(fast)(*args)
  assert len(times) == 1


def test_max_pool_gives_its_gradient_to_the_first_of_equals():
  x = jnp.zeros((1, 5, 4, 1)).at[0, 1, 1].set(2.0)
  pool = replace_layers(lambda x: nn.max_pool(x, (2, 2), (2, 2)), 'lax')
  got = jax.grad(lambda x: pool(x).sum())(x)[0, ..., 0]
  winners = [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0] * 4, [0] * 4]
  np.testing.assert_array_equal(got, winners)
