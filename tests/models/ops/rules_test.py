"""What has a rule has the original's numbers; what only looks so stays."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from replaced import check, layer, normal

from fedjax_pfl.models.ops.batch_norm import masked_batch_norm
from fedjax_pfl.models.ops.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
every_way = pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])


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


@every_way
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
def test_a_norm_that_is_not_ours_alone_stays(fn, conv_impl):
  args = normal(6, 2, 2, 2), normal(2), normal(2)
  check(fn, *args, conv_impl=conv_impl)


def valid(kernel, x):
  return lax.conv_general_dilated(
    x, kernel, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )


def pooled(kernel, x):
  y = jax.nn.relu(layer(kernel, x) + kernel[0, 0, 0])
  return nn.max_pool(y, (2, 2), (2, 2))


def normed(kernel, x):
  scale = jnp.ones(kernel.shape[-1])
  y = masked_batch_norm(layer(kernel, x), scale, scale, jnp.ones(len(x)))
  return jax.nn.relu(y)


@every_way
@pytest.mark.parametrize(
  'fn, images, window',
  [
    (pooled, (0, 8, 8, 3), (5, 5, 3, 4)),
    (pooled, (0, 8, 8, 16), (3, 3, 16, 16)),
    (normed, (0, 4, 4, 2), (3, 3, 2, 4)),
    (valid, (2, 3, 3, 2), (5, 5, 2, 4)),
    (lambda _, x: nn.max_pool(x, (3, 3)), (2, 1, 4, 2), (1,)),
    (lambda _, x: nn.avg_pool(x, (3, 3)), (2, 1, 4, 2), (1,)),
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
  shapes = (3, 3, 16, 16), (1, 8, 8, 16)
  args = [(4 * normal(*shape)).astype(jnp.int32) for shape in shapes]
  got = replace_layers(layer, 'gemm')(*args)
  np.testing.assert_array_equal(got, layer(*args))


def test_a_convolution_without_spatial_axes():
  def fn(kernel, x):
    return lax.conv_general_dilated(x, kernel, (), ())

  check(fn, normal(5, 3), normal(2, 3))


@every_way
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
