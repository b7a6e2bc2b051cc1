"""Every layer on a CPU agrees with lax, whichever function computes it."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import normal
from jax import lax
from replaced import check

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.models import layers
from fedjax_pfl.models.ops import blocks, dense
from fedjax_pfl.models.ops.fuse import plan_of
from fedjax_pfl.models.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')


@pytest.fixture(params=['one block', 'many'])
def cache(request, monkeypatch):
  """Batches of three images in one block, and in three."""
  if request.param == 'many':
    monkeypatch.setattr(blocks, 'CACHE', 1)


def pairs(padding):
  return ((padding, padding),) * 2 if isinstance(padding, int) else padding


@functools.cache  # one object, of which one definition is compiled
def convolution(stride, padding, groups=1):
  """Return (kernel, x) -> the convolution of lax."""

  def conv(kernel, x):
    return lax.conv_general_dilated(
      x,
      kernel,
      (stride, stride),
      pairs(padding),
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
      feature_group_count=groups,
    )

  return conv


# Images [B, H, W, C], kernel [k, l, C, O], stride, padding, plan.
CONVOLUTIONS = [
  ((3, 8, 8, 3), (3, 3, 3, 4), 1, 1, 'patches'),
  ((3, 7, 9, 5), (3, 3, 5, 4), 2, 1, 'patches'),
  ((3, 6, 7, 3), (1, 1, 3, 4), 2, 0, 'patches'),
  # A stride larger than the image; zeros on one side only.
  ((3, 1, 7, 1), (1, 2, 1, 4), 4, 0, 'patches'),
  ((3, 7, 8, 5), (2, 3, 5, 4), 2, ((0, 1), (0, 1)), 'patches'),
  # Tiles that fill the result, and that reach beyond it.
  ((3, 10, 18, 16), (3, 3, 16, 17), 1, 0, 'tiles'),
  ((3, 9, 8, 16), (5, 5, 16, 17), 1, 2, 'tiles'),
]


@pytest.mark.parametrize('case', CONVOLUTIONS, ids=str)
def test_a_convolution(case, cache):
  images, window, stride, padding, plan = case
  x, kernel = normal(*images), normal(*window)
  assert plan_of(x, kernel, stride, pairs(padding)) == plan
  program = check(convolution(stride, padding), kernel, x)
  assert 'conv_general_dilated[' not in program


def test_an_accelerator_has_no_blocks(monkeypatch):
  monkeypatch.setattr(blocks, 'CACHE', 1)
  args = normal(3, 3, 16, 18), normal(4, 12, 8, 16)  # as in no other test
  with compiling_for('gpu'):
    program = check(convolution(1, 1), *args)
  assert 'scan[' not in program and 'while[' not in program


# Images, kernel, padding, pooled pixels a side: the rest of lines is left out.
POOLED = [
  ((3, 8, 8, 3), (3, 5, 3, 4), 1, 2, 'patches'),
  ((3, 13, 13, 3), (5, 5, 3, 4), 0, 2, 'windows'),
  ((3, 14, 14, 16), (5, 5, 16, 16), 0, 2, 'tiles'),
]


@pytest.mark.parametrize('case', POOLED, ids=str)
def test_convolution_relu_and_pooling(case):
  images, window, padding, size, plan = case

  def fn(kernel, bias, x):
    y = convolution(1, padding)(kernel, x) + bias
    return layers.max_pool(nn.relu(y), size)

  x, kernel = normal(*images), normal(*window)
  assert plan_of(x, kernel, 1, pairs(padding), size) == plan
  bias = normal(window[-1]) - 0.5  # so that the ReLU has work
  check(fn, kernel, bias, x)


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(fn, dtype, *args):
  """Return the result and the gradients in this precision."""
  y, pull = jax.vjp(fn, *(a.astype(dtype) for a in args))
  return y, *pull(normal(*y.shape).astype(dtype))


def test_tiles_lose_few_digits_in_single_precision():
  args = normal(5, 5, 16, 17), normal(3, 12, 14, 16)
  fn = convolution(1, 0)
  ours = run(replace_layers(fn, 'gemm'), jnp.float32, *args)
  for got, want in zip(ours, run(fn, jnp.float32, *args), strict=True):
    error = float(jnp.sqrt(jnp.mean((got - want) ** 2)))
    assert error < 3e-6 * float(jnp.std(want))


@pytest.mark.parametrize('kernel', [(3, 3, 32), (3, 3, 1)])
def test_half_precision_loses_few_digits(kernel):
  args = normal(*kernel, 32), normal(2, 16, 16, 32)
  fn = convolution(1, len(kernel) // 2, 32 // kernel[2])
  ours = run(replace_layers(fn, 'gemm'), jnp.bfloat16, *args)
  theirs, want = (run(fn, dtype, *args) for dtype in (jnp.bfloat16, float))
  for a, b, c in zip(ours, theirs, want, strict=True):
    assert jnp.mean((a - c) ** 2) < 1.5**2 * jnp.mean((b - c) ** 2)


@pytest.mark.parametrize('axes', [(0, 0), (None, 0)])
def test_kernel_gradients_of_clients_on_a_gpu(axes):
  """Grouped, with an axis of groups in one gradient; also differentiated."""
  fn = convolution(2, ((1, 0), (1, 1)))
  args = normal(*(4,) * (axes[0] == 0), 3, 2, 3, 5), normal(4, 2, 7, 6, 3)

  def slopes(fn, kernel, x):
    return jax.grad(lambda *args: (fn(*args) ** 3).sum(), (0, 1))(kernel, x)

  def second(fn, kernel, x):
    def size(*args):
      return sum((g**2).sum() for g in slopes(fn, *args))

    return jax.grad(size, (0, 1))(kernel, x)

  with compiling_for('gpu'):
    ours = replace_layers(fn, 'fused')
    for derive in (slopes, second):
      got, want = (
        jax.vmap(functools.partial(derive, one), axes)(*args)
        for one in (ours, fn)
      )
      for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    own = jax.vmap(functools.partial(slopes, ours), axes)
    assert 'batch_group_count=4' in str(jax.make_jaxpr(own)(*args))


@pytest.mark.parametrize('conv_impl', ['gemm', 'fused'])
@pytest.mark.parametrize(
  ('sides', 'stride'), [((8, 8), 2), ((7, 4), 1), ((1, 2), 2)]
)
def test_a_depthwise_convolution(sides, stride, conv_impl):
  fn = convolution(stride, 1, groups=5)
  args = normal(3, 3, 1, 5), normal(3, *sides, 5)
  program = check(fn, *args, conv_impl=conv_impl)
  assert 'conv_general_dilated[' not in program


@pytest.mark.parametrize('conv_impl', ['gemm', 'lax'])
def test_the_first_of_equal_pixels_gets_the_gradient(conv_impl):
  """Of windows as pixels; below the middle the ReLU is shut."""
  x = jnp.ones((2, 8, 8, 1)).at[:, 4:].set(-1.0)
  delta = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)

  def fn(x):
    y = nn.relu(convolution(1, 1)(delta, x))
    return nn.max_pool(y, (2, 2), (2, 2)).sum()

  winners = np.zeros((2, 8, 8, 1))
  winners[:, :4:2, ::2] = 1
  slope = jax.jit(jax.grad(replace_layers(fn, conv_impl)))
  np.testing.assert_array_equal(slope(x), winners)


# ---- dense layers with a large kernel


def two_layers(params, x):
  first, second = params
  return jnp.tanh(jnp.tanh(x @ first) @ second)


@pytest.mark.parametrize('rows', [0, dense.MOST_ROWS, dense.MOST_ROWS + 1])
def test_gradients_agree_twice(rows, monkeypatch):
  monkeypatch.setattr(dense, 'LEAST_BYTES', 1)

  @jax.jit
  def derivatives(params, x):
    def run(f):
      slope = jax.grad(lambda *a: (f(*a) ** 3).sum(), (0, 1))
      leaves = jax.tree.leaves
      total = jax.grad(lambda *a: sum(g.sum() for g in leaves(slope(*a))), 1)
      return slope(params, x), total(params, x)

    return run(replace_layers(two_layers, 'gemm')), run(two_layers)

  *params, x = normal(12, 12), normal(12, 5), normal(rows, 12)
  got, want = derivatives(params, x)
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
