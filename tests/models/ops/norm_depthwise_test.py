"""BatchNorm, ReLU and depthwise convolution in blocks of channels."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.models.ops import blocks, fuse_gemm, layers
from fedjax_pfl.models.ops.replace_layers import replace_layers

CHANNELS = 4
MASK = np.array([1.0, 1, 1, 0])


def arrays(rows=6, columns=5):
  draw = np.random.default_rng(0).normal

  def affine():
    return {'scale': draw(size=CHANNELS) + 0.5, 'bias': draw(size=CHANNELS)}

  x = draw(size=(len(MASK), rows, columns, CHANNELS))
  kernel = {'kernel': draw(size=(3, 3, CHANNELS))}
  return jax.tree.map(jnp.asarray, (x, affine(), kernel, affine()))


def separable(how, stride=1, with_mask=True):
  """Return the function of `arrays()`, as a module has it."""

  def f(x, first, kernel, second):
    mask = jnp.asarray(MASK if with_mask else np.ones_like(MASK))
    y = layers.BatchNorm().apply({'params': first}, x, mask)
    depthwise = layers.DepthwiseConv(stride)
    y = depthwise.apply({'params': kernel}, nn.relu(y))
    return nn.relu(layers.BatchNorm().apply({'params': second}, y, mask))

  return replace_layers(f, how)


def grads(how, *args, **options):
  def loss(*args):
    z = separable(how, **options)(*args)
    return (z * jnp.cos(jnp.arange(z.size).reshape(z.shape))).sum(), z

  return jax.jit(jax.grad(loss, range(4), has_aux=True))(*args)


def assert_close(got, want, bound=1e-12):
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, atol=bound * (1 + np.abs(b).max()))


@pytest.mark.usefixtures('float64')
@pytest.mark.parametrize('stride', [1, 2])
@pytest.mark.parametrize('cache', [blocks.CACHE, 1])
@pytest.mark.parametrize('with_mask', [True, False])
def test_values_and_gradients_are_those_of_the_definition(
  stride, cache, with_mask, monkeypatch
):
  """In one block and in one a channel; XLA's own layers are the definition."""
  monkeypatch.setattr(blocks, 'CACHE', cache)
  options = dict(stride=stride, with_mask=with_mask)
  args = arrays()
  assert_close(grads('gemm', *args, **options), grads('lax', *args, **options))


def test_sides_of_one_pixel_and_odd_ones(float64):
  for shape in ((1, 1), (1, 3), (7, 2)):
    args = arrays(*shape)
    for stride in (1, 2):
      want = grads('lax', *args, stride=stride)
      assert_close(grads('gemm', *args, stride=stride), want)


def test_padding_does_not_matter():
  args = arrays()
  want, _ = grads('gemm', *args)
  garbage = args[0].at[3].set(1e4)
  got, z = grads('gemm', garbage, *args[1:])
  assert_close(got, want, 1e-5)
  assert not z[3].any() and not got[0][3].any()


@pytest.mark.parametrize('stride', [1, 2])
def test_second_derivatives_agree(stride, float64, monkeypatch):
  """Per-FedAvg differentiates through a step; not through loops of blocks."""
  monkeypatch.setattr(blocks, 'CACHE', 1)
  args = arrays()

  def slope(how, *args):
    of, z = grads(how, *args, stride=stride)
    return sum((g**2).sum() for g in jax.tree.leaves((of, z)))

  second = jax.jit(jax.grad(slope, (1, 2, 3, 4)), static_argnums=0)
  assert_close(second('gemm', *args), second('lax', *args), 1e-10)
  loops = str(second.trace('gemm', *args).jaxpr)
  assert 'scan' in loops and 'reverse=True' not in loops


def test_clients_side_by_side_are_each_their_own(float64):
  x, *args = arrays()
  clients = jnp.stack([x, 2 * x[::-1], x**2])
  got = jax.vmap(lambda x: grads('gemm', x, *args))(clients)
  want = [grads('gemm', x, *args) for x in clients]
  assert_close(got, jax.tree.map(lambda *leaves: jnp.stack(leaves), *want))


def test_layers_of_two_masks_stay_apart(monkeypatch, float64):
  fused = []
  original = fuse_gemm._separable

  def count(*args):
    fused.append(args)
    return original(*args)

  monkeypatch.setattr(fuse_gemm, '_separable', count)
  args = arrays()
  separable('gemm')(*args)
  assert len(fused) == 1

  def f(x, first, kernel, second):
    every = jnp.ones(len(MASK))
    y = layers.BatchNorm().apply({'params': first}, x, jnp.asarray(MASK))
    y = layers.DepthwiseConv(1).apply({'params': kernel}, nn.relu(y))
    return nn.relu(layers.BatchNorm().apply({'params': second}, y, every))

  got = replace_layers(f, 'gemm')(*args)
  assert len(fused) == 1
  assert_close(got, replace_layers(f, 'lax')(*args))


def test_what_a_block_keeps_is_for_the_next_one():
  def running(total, x):
    total = total + x.sum(0)
    return total, (x * 2, total[None])

  x = jnp.arange(12.0).reshape(6, 2)
  for in_place in (False, True):
    kept, (doubled, totals) = blocks.in_turn(
      running, 1, jnp.zeros(2), x, in_place=in_place
    )
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(totals, np.cumsum(x, 0))
    np.testing.assert_array_equal(kept, x.sum(0))
