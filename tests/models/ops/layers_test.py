"""BatchNorm, pooling and initialisers, by their definition."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.models.ops import layers, relu_pool, window_conv
from fedjax_pfl.models.ops.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler')
HOW = ('gemm', 'fused', 'lax')


def images(*shape):
  return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def norm(how, x, mask, skip=None, scale=0.0, relu=False, pooled=False):
  """Return what follows a convolution in a model, by one implementation."""
  channels = x.shape[-1]
  params = {
    'scale': jnp.linspace(-1, 1.5, channels) + scale,
    'bias': jnp.linspace(0.5, -0.5, channels),
  }

  def f(params, x, mask, skip):
    y = layers.BatchNorm().apply({'params': params}, x, mask)
    if skip is not None:
      zero = {'scale': jnp.ones(channels), 'bias': jnp.zeros(channels)}
      y = y + layers.BatchNorm().apply({'params': zero}, skip, mask)
    y = nn.relu(y) if relu else y
    return layers.max_pool(y) if pooled else y

  return replace_layers(f, how)(params, x, mask, skip)


def conv_norm(how):
  """Return (conv, affine, x, mask) -> a block of the 4convNet."""

  def f(conv, affine, x, mask):
    layer = layers.Conv(len(affine['bias']), use_bias='bias' in conv)
    y = layer.apply({'params': conv}, x)
    y = layers.BatchNorm().apply({'params': affine}, y, mask)
    return layers.max_pool(nn.relu(y))

  return replace_layers(f, how)


@pytest.mark.parametrize('how', HOW)
def test_norm_by_hand(how):
  x = images(5, 3, 2, 4)
  rows = np.asarray(x[:3], np.float64)
  mean, var = rows.mean((0, 1, 2)), rows.var((0, 1, 2))  # biased
  want = (rows - mean) / np.sqrt(var + 1e-5)
  want = want * np.linspace(-1, 1.5, 4) + np.linspace(0.5, -0.5, 4)
  mask = jnp.array([1.0, 1, 1, 0, 0])
  got = norm(how, x, mask)
  np.testing.assert_allclose(got[:3], want, atol=2e-6)
  assert not got[3:].any()
  skip = images(5, 3, 2, 4)[::-1]
  rows = np.asarray(skip[:3], np.float64)
  rows = (rows - rows.mean((0, 1, 2))) / np.sqrt(rows.var((0, 1, 2)) + 1e-5)
  got = norm(how, x, mask, skip, relu=True)
  np.testing.assert_allclose(got[:3], np.maximum(want + rows, 0), atol=4e-6)
  assert not got[3:].any()


@pytest.mark.parametrize('how', HOW)
def test_norm_of_clients_is_that_of_each(how):
  """Side by side as alone: values and gradients, with a skip and a ReLU."""
  x, mask = images(2, 3, 5, 3, 4), jnp.array([[1.0, 1, 0], [1, 1, 1]])

  @jax.jit
  def play(x, skip, mask):
    def f(x, skip):
      return norm(how, x, mask, skip, relu=True)

    z, pull = jax.vjp(f, x, skip)
    return z, *pull(jnp.cos(jnp.arange(z.size)).reshape(z.shape))

  got = jax.vmap(play)(x, x[::-1], mask)
  alone = [play(*arrays) for arrays in zip(x, x[::-1], mask, strict=True)]
  for side_by_side, each in zip(got, zip(*alone, strict=True), strict=True):
    np.testing.assert_allclose(side_by_side, jnp.stack(each), atol=1e-5)


@pytest.mark.parametrize('how', HOW)
def test_padding_does_not_matter(how):
  """Outputs and gradients do not depend on padded rows."""
  kernel = {'kernel': 0.3 * images(3, 3, 4, 4), 'bias': jnp.ones(4)}
  affine = {'scale': jnp.array([1.0, -2, 0.5, 1]), 'bias': jnp.full(4, 0.1)}

  def f(kernel, affine, x, mask):
    y = conv_norm(how)(kernel, affine, x, mask)
    return (y[:3] * jnp.cos(jnp.arange(4.0))).sum(), y[:3]

  run = jax.jit(jax.value_and_grad(f, (0, 1, 2), has_aux=True))

  def play(x):
    mask = (jnp.arange(len(x)) < 3).astype(float)
    (_, y), (dk, da, dx) = run(kernel, affine, x, mask)
    assert not dx[3:].any()
    return y, dk['kernel'], da, dx[:3]

  real = images(3, 4, 4, 4)
  want = play(real)
  for garbage in (0.0, 1e4):
    got = play(jnp.concatenate([real, jnp.full((2, 4, 4, 4), garbage)]))
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
      np.testing.assert_allclose(a, b, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize('how', HOW)
@pytest.mark.parametrize('pooled', [False, True])
def test_empty_batch_is_finite(how, pooled):
  def f(x):
    return norm(how, x, jnp.zeros(3), relu=True, pooled=pooled).sum()

  value, grad = jax.jit(jax.value_and_grad(f))(images(3, 4, 4, 2))
  assert value == 0
  assert not grad.any()


@pytest.mark.parametrize(
  'options', [{}, {'relu': True}, {'relu': True, 'pooled': True}], ids=str
)
def test_norm_gradients_agree(options):
  """Also with a negative scale: the smallest pixel is then the largest.

  What follows may have a gradient outside of the mask, too.
  """
  x, mask = images(4, 6, 4, 5), jnp.array([1.0, 1, 1, 0])

  def f(how, x, skip, scale):
    z = norm(how, x, mask, skip, scale, **options)
    return ((1 + z) ** 2).sum()

  grad = jax.jit(jax.grad(f, (1, 2, 3)), static_argnums=0)
  *ours, want = (grad(how, x, x[::-1], 0.1) for how in HOW)
  for got in ours:
    for a, b in zip(got, want, strict=True):
      np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize('pooled', [False, True])
def test_norm_gradients_of_every_platform(pooled):
  """'fused' is another program on a TPU."""
  x, mask = images(4, 6, 4, 5), jnp.array([1.0, 1, 1, 0])

  def slopes(platform):
    def f(x):
      z = norm('fused', x, mask, relu=True, scale=0.1, pooled=pooled)
      return (z**2).sum()

    with compiling_for(platform):
      return jax.grad(f)(x)

  np.testing.assert_allclose(slopes('tpu'), slopes('gpu'), atol=1e-5)


def test_second_derivatives_agree():
  """Per-FedAvg differentiates through a step, so through these gradients."""
  x, mask = images(3, 4, 4, 2), jnp.array([1.0, 1, 0])

  def slope(kernel, how):
    affine = {'scale': jnp.ones(2), 'bias': jnp.full(2, 0.1)}

    def f(kernel):
      y = conv_norm(how)({'kernel': kernel}, affine, x, mask)
      return (y**3).sum()

    return (jax.grad(f)(kernel) ** 2).sum()

  second = jax.jit(jax.grad(slope), static_argnums=1)
  *ours, want = (second(images(3, 3, 2, 2), how) for how in HOW)
  bound = 1e-4 * float(jnp.abs(want).max())
  for got in ours:
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)


def test_max_pool_leaves_out_an_odd_line():
  x = jnp.arange(15.0).reshape(1, 3, 5, 1)
  np.testing.assert_array_equal(layers.max_pool(x)[0, ..., 0], [[6, 8]])
  np.testing.assert_array_equal(layers.max_pool(x, 3)[0, ..., 0], [[12]])


# Side, channels, kernel, padding, pool: patches, Winograd, and windows as
# pixels; with and without a rest of lines.
RELU_POOL = [
  (9, 3, 5, 0, 2),
  (11, 2, 5, 0, 3),
  (8, 16, 3, 1, 2),
  (13, 3, 5, 0, 2),
  (8, 2, (3, 5), 1, 2),
  (12, 2, 5, 0, 3),
  # Tiles of 2 and of 4 pixels.
  (14, 16, 5, 0, 2),
  (8, 17, 3, 1, 2),
  (12, 16, 3, 1, 4),
]


@pytest.mark.parametrize('case', RELU_POOL, ids=str)
def test_conv_relu_pool_agrees(case, float64):
  side, channels, size, padding, pool = case
  x = jnp.asarray(
    np.random.default_rng(0).normal(size=(3, side, side, channels))
  )
  size = (size, size) if isinstance(size, int) else size
  layer = layers.Conv(4, size, padding=padding, use_bias=True)

  def conv_relu_pool(params, x):
    return layers.max_pool(nn.relu(layer.apply(params, x)), pool)

  params = layer.init(jax.random.key(0), x)
  params['params']['bias'] -= 0.5  # so that the ReLU has work

  def run(how):
    def f(params, x):
      z = replace_layers(conv_relu_pool, how)(params, x)
      return (z * jnp.cos(jnp.arange(z.size)).reshape(z.shape)).sum(), z

    return jax.jit(jax.value_and_grad(f, (0, 1), has_aux=True))(params, x)

  got, _, want = map(run, HOW)
  high, wide = ((side + 2 * padding - k + 1) // pool for k in size)
  assert got[0][1].shape == (3, high, wide, 4)
  assert 0.03 < float((got[0][1] == 0).mean()) < 0.9
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_relu_pool_twice_differentiable_and_first_of_equals():
  y = jnp.ones((1, 4, 5, 2)).at[:, 2:, 2:].set(-3.0)  # [C, H, W, B]

  def slope(y, power):
    def f(y):
      return (relu_pool.relu_pool(y, jnp.ones(1), 2) ** power).sum()

    return jax.grad(f)(y)

  winners = np.zeros((1, 4, 5, 2))
  winners[:, ::2, :4:2] = 1
  winners[:, 2:, 2:] = 0  # the ReLU is shut
  np.testing.assert_array_equal(slope(y, 1), winners)
  y += 0.1 * winners  # no longer equal: 6 (1.1 + bias)
  second = jax.grad(lambda y: slope(y, 3).sum())(y)
  np.testing.assert_allclose(second, 6 * 2.1 * winners, rtol=1e-6)


def test_windows_as_pixels_twice_differentiable_and_first_of_equals():
  x = jnp.ones((2, 8, 8, 1)).at[:, 4:].set(-1.0)
  delta = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)
  assert window_conv.is_worth(x.shape, delta.shape, 1, 2)

  def power_sum(x, kernel, power):
    z = window_conv.conv_relu_pool(x, kernel, jnp.zeros(1), 2, 1)
    return (z**power).sum()

  winners = np.zeros((2, 8, 8, 1))
  winners[:, :4:2, ::2] = 1  # below, the ReLU is shut
  np.testing.assert_array_equal(jax.grad(power_sum)(x, delta, 1), winners)
  slope = jax.grad(power_sum, 1)
  second = jax.grad(lambda k: slope(x, k, 3)[1, 1].sum())(delta)
  assert second[1, 1, 0, 0] == 6 * 2 * 8  # sum of 6 z over 8 windows an image


def test_first_of_equal_pixels_gets_the_gradient():
  x = jnp.ones((1, 4, 4, 3)).at[:, 2:].set(0.0)
  params = {'kernel': jnp.zeros((3, 3, 3, 1)).at[1, 1].set(1 / 3)}
  affine = {'scale': jnp.ones(1), 'bias': jnp.ones(1) * 2}

  def f(x):
    return conv_norm('gemm')(params, affine, x, jnp.ones(1)).sum()

  g = jax.jit(jax.grad(f))(x)[0, ..., 0]
  winners = np.zeros((4, 4), bool)
  winners[::2, ::2] = True
  assert float(g[winners].min()) > float(g[~winners].max())


def test_initialisers_are_pytorchs():
  key, x = jax.random.key(0), jnp.zeros((1, 4, 4, 32))
  cases = [
    (layers.Conv(64, use_bias=True), 1 / np.sqrt(9 * 32)),
    (layers.Conv(64, (1, 1), padding=0), 1 / np.sqrt(32)),
    (layers.DepthwiseConv(), 1 / 3),
    (layers.Pointwise(64), 1 / np.sqrt(32)),
    (layers.Dense(64), 1 / np.sqrt(32)),
  ]
  for layer, bound in cases:
    x_in = x[0, 0] if isinstance(layer, layers.Dense) else x
    for leaf in jax.tree.leaves(jax.jit(layer.init)(key, x_in)['params']):
      assert bound * 0.9 < float(jnp.abs(leaf).max()) <= bound
      assert abs(float(leaf.mean())) < 4 * bound / np.sqrt(3 * leaf.size)
      spread = float(leaf.std())
      assert abs(spread - bound / np.sqrt(3)) < 2 * bound / np.sqrt(leaf.size)
  normal = layers.Conv(64, (5, 5), use_bias=True, inits=layers.glorot_normal)
  params = jax.jit(normal.init)(key, jnp.zeros((1, 8, 8, 32)))['params']
  std = np.sqrt(2 / (25 * 32 + 25 * 64))
  assert abs(float(params['kernel'].std()) / std - 1) < 0.02
  assert float(abs(params['kernel']).max()) > 3.5 * std  # not truncated
  assert not params['bias'].any()
  params = jax.jit(layers.BatchNorm().init)(key, x, jnp.ones(1))['params']
  assert (params['scale'] == 1).all()
  assert not params['bias'].any()
