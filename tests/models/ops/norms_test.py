"""BatchNorm with what surrounds it, by its definition, in every way."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import long, normal

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.models import layers
from fedjax_pfl.models.ops import blocks
from fedjax_pfl.models.replace_layers import replace_layers

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
HOW = ('gemm', 'fused')
MASK = np.array([1.0, 1, 1, 0])
# With a negative scale the smallest pixel of a window becomes the largest.
SCALE = np.array([1.0, -2, 0.5, 1])


def norm(x, scale, bias, mask):
  params = {'params': {'scale': scale, 'bias': bias}}
  return layers.BatchNorm().apply(params, x, mask)


def relu(mask, scale, bias, x):
  return nn.relu(norm(x, scale, bias, mask))


def skipped(mask, scale, bias, x, other):
  skip = norm(other, jnp.ones(4), jnp.zeros(4), mask)
  return nn.relu(norm(x, scale, bias, mask) + skip)


def pooled(mask, scale, bias, x):
  return layers.max_pool(nn.relu(norm(x, scale, bias, mask)))


def convolved(mask, scale, bias, x, kernel):
  """A block of the ConvNets."""
  y = layers.Conv(4, use_bias=True).apply(
    {'params': {'kernel': kernel, 'bias': bias}}, x
  )
  return pooled(mask, scale, bias, y)


def separable(mask, scale, bias, x, kernel, stride=1):
  """Part of a block of MobileNet."""
  y = nn.relu(norm(x, scale, bias, mask))
  y = layers.DepthwiseConv(stride).apply({'params': {'kernel': kernel}}, y)
  return nn.relu(norm(y, scale, bias, mask))


def strided(*args):
  return separable(*args, stride=2)


def test_lines_and_rows_are_images_of_one_pixel_width():
  params = {'params': {'scale': normal(4), 'bias': normal(4)}}
  lines, mask = normal(5, 6, 4), jnp.array([1, 1, 0, 1, 0.0])
  apply = layers.BatchNorm().apply
  want = apply(params, lines[:, :, None], mask)[:, :, 0]
  np.testing.assert_allclose(apply(params, lines, mask), want, atol=1e-6)
  want = apply(params, lines[:, :1, None], mask)[:, 0, 0]
  np.testing.assert_allclose(apply(params, lines[:, 0], mask), want, atol=1e-6)


IMAGES = 4, 6, 4, 4
LAYERS = {  # and the shapes of its arguments after the mask, scale and bias
  relu: (IMAGES,),
  skipped: (IMAGES, IMAGES),
  pooled: ((4, 7, 4, 4),),
  convolved: (IMAGES, (3, 3, 4, 4)),
  separable: ((4, 6, 5, 4), (3, 3, 4)),
  strided: ((4, 6, 5, 4), (3, 3, 4)),
}
every_layer = pytest.mark.parametrize('fn', LAYERS)
every_way = pytest.mark.parametrize('how', HOW)


def arguments(fn):
  first, *rest = (normal(*shape) for shape in LAYERS[fn])
  return jnp.asarray(SCALE), normal(4), first, *(row[::-1] for row in rest)


def derived(fn, how, platform, mask, *args):
  """Return the values of fn, and the gradient of each argument but the mask.

  how: as for `replace_layers`; '': by the definition.
  """
  own = partial(fn, mask)
  with compiling_for(platform):
    z, pull = jax.vjp(replace_layers(own, how) if how else own, *args)
    return z, *pull(jnp.cos(jnp.arange(z.size)).reshape(z.shape))


# Static: for another platform it is traced again.
slopes = jax.jit(derived, static_argnums=(0, 1, 2))


def assert_close(got, want, bound=1e-10):
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=bound * (1 + abs(b).max()))


def test_norm_by_hand():
  x, scale, bias = normal(*IMAGES), jnp.asarray(SCALE), normal(4)
  rows = np.asarray(x[:3])
  mean, var = rows.mean((0, 1, 2)), rows.var((0, 1, 2))  # biased
  want = (rows - mean) / np.sqrt(var + 1e-5) * scale + bias
  got = norm(x, scale, bias, jnp.asarray(MASK))
  np.testing.assert_allclose(got[:3], want, atol=1e-10)
  assert not got[3:].any()


@pytest.mark.parametrize(
  'how, platform',
  [
    *[('gemm', 'cpu'), ('fused', 'cpu'), ('fused', 'tpu')],
    *[('gemm', 'gpu'), ('fused', 'gpu')],
  ],
)
@every_layer
def test_values_and_gradients_are_those_of_the_definition(fn, how, platform):
  """'fused' is another program on a GPU and on a TPU."""
  args = MASK, *arguments(fn)
  assert_close(slopes(fn, how, platform, *args), slopes(fn, '', 'cpu', *args))


@every_way
@every_layer
def test_an_empty_batch_is_finite(fn, how):
  """Its outputs are zeros, and so are their gradients."""
  z, *gradients = slopes(fn, how, 'cpu', 0 * MASK, *arguments(fn))
  assert not any(leaf.any() for leaf in (z, *gradients))


@pytest.mark.parametrize(
  ('fn', 'how'),
  [
    (convolved, 'gemm'),
    (separable, 'fused'),
    long(convolved, 'fused'),
    long(strided, 'gemm'),
    long(strided, 'fused'),
    long(separable, 'gemm'),
  ],
)
def test_second_derivatives_agree(fn, how, monkeypatch):
  """Per-FedAvg differentiates through a step; in blocks of an image."""
  monkeypatch.setattr(blocks, 'CACHE', 1)
  args = arguments(fn)

  def slope(how, *args):
    return sum((g**2).sum() for g in derived(fn, how, 'cpu', MASK, *args))

  second = jax.jit(jax.grad(slope, range(1, 5)), static_argnums=0)
  assert_close(second(how, *args), second('', *args))


def test_clients_side_by_side_are_each_their_own():
  scale, bias, x, *rest = arguments(convolved)

  def own(x):
    return slopes(convolved, 'gemm', 'cpu', MASK, scale, bias, x, *rest)

  clients = jnp.stack([x, 2 * x[::-1], x**2])
  want = [own(x) for x in clients]
  got = jax.vmap(own)(clients)
  assert_close(got, jax.tree.map(lambda *leaves: jnp.stack(leaves), *want))
