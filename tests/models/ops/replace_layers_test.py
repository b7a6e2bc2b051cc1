"""Modules that know nothing of the project give the same numbers, faster."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging
from flax import nnx
from jax import lax
from replaced import check, convolutions, layer, normal

from fedjax_pfl.models.ops import replace_layers as module
from fedjax_pfl.models.ops.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(autouse=True)
def double():
  with jax.enable_x64(True):
    yield


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
  'options, reason',
  [
    ({'rhs_dilation': (2, 2)}, 'with a dilated kernel'),
    ({'feature_group_count': 2}, 'of 2 groups, kernel 3x3x1x2'),
    ({'window_strides': (1, 2)}, 'with strides (1, 2)'),
    ({'lhs_dilation': (2, 2)}, 'with a dilated image'),
    ({'padding': ((-1, 1), (0, 0))}, 'with negative padding'),
    ({'preferred_element_type': jnp.float32}, 'with a result of another dtype'),
  ],
)
def test_what_stays_is_named_once(options, reason, caplog, monkeypatch):
  module._log_once.cache_clear()
  monkeypatch.setattr(logging.get_absl_logger(), 'propagate', True)
  how = {
    'window_strides': (1, 1),
    'padding': ((0, 0), (0, 0)),
    'dimension_numbers': ('NHWC', 'HWIO', 'NHWC'),
  }

  def fn(kernel, x):
    def conv():
      return lax.conv_general_dilated(x, kernel, **how | options)

    return conv() + conv()

  groups = options.get('feature_group_count', 1)
  shapes = (3, 3, 2 // groups, 2), (1, 6, 6, 2)
  kernel, x = (normal(*shape).astype(jnp.bfloat16) for shape in shapes)
  program = str(jax.make_jaxpr(replace_layers(fn, 'gemm'))(kernel, x))
  assert convolutions(program) == 2
  assert [record.getMessage() for record in caplog.records] == [
    f'A convolution {reason} stays as it is, and may be slow on a CPU'
  ]


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
