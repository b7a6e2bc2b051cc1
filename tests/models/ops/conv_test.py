"""Our convolutions agree with lax's: values and gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.models.ops import blocks, conv, tile_conv
from fedjax_pfl.models.ops.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler')

# H, W, channels, kernel, stride, padding: odd and even sides; few channels
# (patches) and many on a large image (Winograd).
CASES = [
  (8, 8, 3, 3, 1, 1),
  (7, 5, 3, 3, 1, 1),
  (9, 11, 16, 3, 1, 1),
  (8, 6, 5, 3, 2, 1),
  (7, 9, 5, 3, 2, 1),
  (1, 1, 4, 3, 2, 1),
  (6, 7, 4, 1, 1, 0),
  (6, 7, 4, 1, 2, 0),
  (6, 7, 4, 1, 1, 1),
  # Of a kernel with more channels than outputs, and with fewer.
  (6, 7, 9, 1, 1, 0),
  (6, 7, 3, 1, 2, 0),
  # A stride larger than the image.
  (1, 7, 1, (1, 2), 4, 0),
  (9, 8, 2, 5, 1, 0),
  # Of a kernel that is not square, and of zeros on one side only.
  (9, 8, 2, (5, 3), 1, 0),
  (7, 8, 5, (2, 3), 2, ((0, 1), (0, 1))),
  (1, 9, 5, (1, 4), 2, ((0, 0), (3, 1))),
]
TOLERANCE = {'float32': 2e-6, 'float64': 1e-14}


@pytest.fixture
def double():
  with jax.enable_x64(True):
    yield 'float64'


def value_and_gradients(f, x, kernel):
  @jax.jit
  def run(x, kernel):
    y, pull = jax.vjp(f, x, kernel)
    weights = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
    return (y, *pull(weights))

  return run(x, kernel)


def assert_close(got, want, dtype):
  for a, b in zip(got, want, strict=True):
    assert a.dtype == b.dtype == dtype
    bound = TOLERANCE[dtype] * float(jnp.abs(b).max())
    np.testing.assert_allclose(a, b, rtol=0, atol=bound)


def normal(seed, shape, dtype):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


@pytest.mark.parametrize('case', CASES, ids=str)
def test_conv_agrees(case, double):
  compare_convs(case, double)


@pytest.mark.parametrize('case', [CASES[0], CASES[4]], ids=str)
def test_conv_agrees_in_single_precision(case):
  compare_convs(case, 'float32')


def lax_conv(x, kernel, stride, padding, groups=1):
  return lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    feature_group_count=groups,
  )


def compare_convs(case, dtype):
  h, w, channels, size, stride, padding = case
  size = (size, size) if isinstance(size, int) else size
  if isinstance(padding, int):
    padding = ((padding, padding),) * 2
  x = normal(0, (3, h, w, channels), dtype)
  kernel = normal(1, (*size, channels, 4), dtype)
  ways = conv.conv, conv.conv_before_norm, conv.conv_before_separable, lax_conv
  *ours, want = (
    value_and_gradients(lambda x, k, f=f: f(x, k, stride, padding), x, kernel)
    for f in ways
  )
  for got in ours:
    assert_close(got, want, dtype)


@pytest.mark.parametrize(
  ('shape', 'plan'),
  [
    ((32, 4, 4, 16), 'tiles'),
    ((31, 4, 4, 16), 'once'),
    ((32, 5, 5, 16), 'once'),
    ((1, 8, 8, 16), 'tiles'),
  ],
)
def test_images_of_one_tile_are_tiles_if_there_are_many(shape, plan):
  x, kernel = jnp.zeros(shape), jnp.zeros((3, 3, 16, 16))
  assert conv.plan_of(x, kernel, 1, ((1, 1), (1, 1))) == plan


# H, W, kernel, edge: tiles that fill the result, and that reach beyond it.
TILES = [(10, 18, 3, 0), (8, 9, 3, 1), (12, 14, 5, 0), (9, 8, 5, 2)]


def compare_tiles(case, dtype):
  h, w, size, edge = case
  x = normal(0, (3, h, w, 16), dtype)
  kernel = normal(1, (size, size, 16, 17), dtype)
  padding = ((edge, edge),) * 2
  assert conv.plan_of(x, kernel, 1, padding) == 'tiles'
  return (
    value_and_gradients(f, x, kernel)
    for f in (
      lambda x, k: tile_conv.conv(x, k, edge, 'highest'),
      lambda x, k: lax_conv(x, k, 1, padding),
    )
  )


@pytest.mark.parametrize('cache', [2**30, 1])
@pytest.mark.parametrize('case', TILES, ids=str)
def test_tiles_agree_in_one_block_and_in_three(
  case, cache, double, monkeypatch
):
  monkeypatch.setattr(blocks, 'CACHE', cache)
  for got, want in zip(*compare_tiles(case, double), strict=True):
    bound = 1e-14 * float(jnp.abs(want).max())
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize('case', [TILES[0], TILES[2]], ids=str)
def test_tiles_lose_few_digits_in_single_precision(case):
  for got, want in zip(*compare_tiles(case, 'float32'), strict=True):
    error = float(jnp.sqrt(jnp.mean((got - want) ** 2)))
    assert error < 3e-6 * float(jnp.std(want))


@pytest.mark.parametrize('kernel', [(3, 3, 32), (5, 5, 32), (3, 3, 1)])
@pytest.mark.parametrize('is_pooled', [False, True])
def test_half_precision_loses_few_digits(kernel, is_pooled, float64):
  args = normal(0, (2, 16, 16, 32), float), normal(1, (*kernel, 32), float)

  def fn(x, k):
    y = lax_conv(x, k, 1, 'SAME', 32 // k.shape[2])
    return nn.max_pool(nn.relu(y), (2, 2), (2, 2)) if is_pooled else y

  def run(fn, dtype):
    y, pull = jax.vjp(fn, *(a.astype(dtype) for a in args))
    # Of pixels that are equal in bfloat16 another one may win.
    return [y] if is_pooled else [y, *pull(normal(2, y.shape, dtype))]

  want, theirs = run(fn, float), run(fn, jnp.bfloat16)
  ours = run(replace_layers(fn, 'gemm'), jnp.bfloat16)
  for a, b, c in zip(ours, theirs, want, strict=True):
    assert jnp.mean((a - c) ** 2) < 1.5**2 * jnp.mean((b - c) ** 2)


def test_patches_of_blocks_agree(double, monkeypatch):
  """Six images in three blocks: the kernel's gradient is a sum over them."""
  x, kernel = normal(0, (6, 9, 7, 2), double), normal(1, (3, 5, 2, 4), double)
  padding = ((1, 1),) * 2
  monkeypatch.setattr(blocks, 'CACHE', 2 * 9 * 7 * 2 * 3 * 5 * 8)
  assert conv.plan_of(x, kernel, 1, padding) == 'blocks'
  *ours, want = (
    value_and_gradients(lambda x, k, f=f: f(x, k, 1, padding), x, kernel)
    for f in (conv.conv, conv.conv_before_norm, lax_conv)
  )
  for got in ours:
    assert_close(got, want, double)


def test_tiles_under_vmap_are_a_loop(double, monkeypatch):
  """Clients side by side, each with several blocks."""
  monkeypatch.setattr(blocks, 'CACHE', 1)
  x = normal(0, (2, 4, 8, 8, 16), double)
  kernels = normal(1, (2, 3, 3, 16, 16), double)

  def loss(x, kernel):
    return (tile_conv.conv(x, kernel, 1, None) ** 2).sum()

  grad = jax.jit(jax.grad(loss, (0, 1)))
  want = [grad(a, b) for a, b in zip(x, kernels, strict=True)]
  want = jax.tree.map(lambda *rows: jnp.stack(rows), *want)
  assert_close(jax.vmap(grad)(x, kernels), want, double)


@pytest.mark.parametrize('stride', [1, 2])
@pytest.mark.parametrize('sides', [(8, 8), (7, 4), (1, 2)])
def test_depthwise_agrees(sides, stride, double):
  x = normal(0, (3, *sides, 5), double)
  kernel = normal(1, (3, 3, 5), double)

  def by_lax(x, kernel):
    return lax_conv(x, kernel[:, :, None], stride, ((1, 1), (1, 1)), 5)

  def ours(x, kernel):
    return conv.depthwise(x, kernel, stride)

  got, want = (value_and_gradients(f, x, kernel) for f in (ours, by_lax))
  assert_close(got, want, double)


def test_stride_two_pads_both_sides():
  """The centre tap alone picks pixels 0, 2, 4: there is a zero before 0."""
  x = jnp.arange(36.0).reshape(1, 6, 6, 1)
  kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1)
  y = conv.conv(x, kernel, 2, ((1, 1), (1, 1)))
  np.testing.assert_array_equal(y, x[:, ::2, ::2])
  y = conv.depthwise(x, kernel[..., 0], 2)
  np.testing.assert_array_equal(y, x[:, ::2, ::2])


def test_under_vmap_over_kernels_is_a_loop():
  x = normal(0, (4, 2, 4, 4, 3), 'float32')
  kernels = normal(1, (4, 3, 3, 3, 2), 'float32')

  def loss(x, kernel):
    return (conv.conv(x, kernel, 1, ((1, 1), (1, 1))) ** 2).sum()

  grad = jax.jit(jax.grad(loss, (0, 1)))
  want = [grad(a, b) for a, b in zip(x, kernels, strict=True)]
  want = jax.tree.map(lambda *rows: jnp.stack(rows), *want)
  assert_close(jax.vmap(grad)(x, kernels), want, 'float32')


def test_unknown_conv_impl_lists_the_choices():
  with pytest.raises(
    BadInput, match=r'Choices: auto, lax, fused, gemm .*mean gemm'
  ):
    conv.resolve('gem')
