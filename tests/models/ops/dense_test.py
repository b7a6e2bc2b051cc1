"""Dense layers with a large kernel agree with lax, and are read few times."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from fedjax_pfl.models.ops import dense
from fedjax_pfl.models.ops.replace_layers import replace_layers

INPUTS, OUTPUTS = 12, 5


@pytest.fixture
def any_size(monkeypatch):
  monkeypatch.setattr(dense, 'LEAST_BYTES', 1)


def two_layers(params, x):
  first, second = params
  return jnp.tanh(jnp.tanh(x @ first) @ second)


def make(rows, dtype):
  rng = np.random.default_rng(0)
  shapes = (INPUTS, INPUTS), (INPUTS, OUTPUTS), (rows, INPUTS)
  *params, x = (jnp.asarray(rng.normal(size=s), dtype) for s in shapes)
  return params, x


@pytest.mark.parametrize('rows', [dense.MOST_ROWS, dense.MOST_ROWS + 1])
def test_gradients_agree_twice(rows, any_size, float64):
  params, x = make(rows, jnp.float64)

  def derivatives(f):
    @jax.jit
    def slope(params, x):
      return jax.grad(lambda *a: (f(*a) ** 3).sum(), (0, 1))(params, x)

    def second(*a):
      return sum(leaf.sum() for leaf in jax.tree.leaves(slope(*a)))

    return slope(params, x), jax.jit(jax.grad(second, (0, 1)))(params, x)

  got = derivatives(replace_layers(two_layers, 'gemm'))
  want = derivatives(two_layers)
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def products(f, *args) -> list[tuple]:
  """Return the shapes of all results of products in a gradient."""

  def shapes(jaxpr):
    for eqn in jaxpr.eqns:
      if eqn.primitive.name == 'dot_general':
        yield eqn.outvars[0].aval.shape
      for inner in core.jaxprs_in_params(eqn.params):
        yield from shapes(inner)

  return sorted(shapes(jax.make_jaxpr(jax.grad(f))(*args).jaxpr))


def test_of_few_rows_no_kernels_gradient_is_a_product(any_size):
  """Nor is there a gradient of the data: x is not differentiated."""
  params, x = make(3, jnp.float32)
  ours = replace_layers(two_layers, 'gemm')
  results = products(lambda params: ours(params, x).sum(), params)
  forward = [(3, OUTPUTS), (3, INPUTS)]
  assert results == sorted([*forward, (3, INPUTS)])


def test_a_small_kernel_stays_with_xla():
  params, x = make(3, jnp.float32)
  ours = replace_layers(two_layers, 'gemm')
  results = products(lambda params: ours(params, x).sum(), params)
  assert (OUTPUTS, INPUTS) in results  # of the gradient, before it is turned


def test_half_precision_stays_with_xla(any_size):
  """A sum of rows in bfloat16 would lose digits that a product keeps."""
  params, x = make(3, jnp.bfloat16)
  ours = replace_layers(two_layers, 'gemm')
  results = products(lambda params: ours(params, x).sum(), params)
  assert (OUTPUTS, INPUTS) in results


def test_without_rows_gradients_are_zero(any_size):
  params, x = make(0, jnp.float32)
  ours = replace_layers(two_layers, 'gemm')
  for slope in jax.grad(lambda params: ours(params, x).sum())(params):
    assert not slope.any()


def test_a_loop_of_steps_neither_copies_the_kernel_nor_writes_its_gradient():
  """Optimised in full: the order is what XLA's copies are removed by."""
  shape = (1024, 257)  # a MiB
  ours = replace_layers(lambda w, x: (jnp.tanh(x @ w) ** 2).sum(), 'gemm')

  def train(w, x):
    def step(_, carry):
      w, x = carry
      slope, towards = jax.grad(ours, (0, 1))(w, x)
      return w - 0.1 * slope, x - towards

    return lax.fori_loop(0, 3, step, (w, x))

  w, x = jnp.ones(shape), jnp.ones((4, 1024))
  text = jax.jit(train).lower(w, x).compile().as_text()
  made = re.findall(r'= f32\[1024,257\]\S* (fusion|copy|dot)\(', text)
  assert sorted(made) == ['copy', 'fusion']  # the copy is of the argument
