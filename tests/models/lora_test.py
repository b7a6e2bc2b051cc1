"""Adapters: the model begins as before, and W becomes W + (alpha / r) A B."""

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from helpers import KEY, assert_same_bits, normal, refused

import fedjax_pfl as pfl
from fedjax_pfl.core.trees import leaf_names
from fedjax_pfl.models.char_lstm import CharLSTM
from fedjax_pfl.models.lora import A, B

pytestmark = pytest.mark.usefixtures('quick_compiler')
X, MASK = normal(3, 6, 8), jax.device_put(np.ones(3, np.float32))


class Linen(nn.Module):
  """A dense layer, attention, a convolution, and layers without a kernel."""

  def setup(self):
    self.body = nn.Dense(8)
    self.attention = nn.MultiHeadDotProductAttention(2)
    self.conv, self.norm = nn.Conv(5, (3,)), nn.LayerNorm()
    self.head = nn.Dense(4)

  def features(self, x, mask):
    x = self.norm(nn.relu(self.body(x)))
    return self.conv(self.attention(x)).mean(axis=1)


class Nnx(nnx.Module):
  def __init__(self, rngs):
    self.layers = nnx.List([nnx.Linear(8, 5, rngs=rngs) for _ in range(2)])
    self.head = nnx.Linear(5, 4, rngs=rngs)

  def features(self, x, mask):
    return sum(layer(x).mean(axis=1) for layer in self.layers)


def task_of(module):
  return pfl.task_from_module(module, image_shape=(6, 8), num_classes=4)


@pytest.mark.parametrize(
  'module, kernels', [(Linen(), 6), (lambda rngs: Nnx(rngs), 2)]
)
def test_a_module_with_adapters(module, kernels):
  """At first the same bits; then the module with other kernels."""
  base = task_of(module)
  task = task_of(pfl.with_lora(module, rank=2, alpha=3.0))
  params, plain = flatten_dict(task.init(KEY(1))), base.init(KEY(1))
  places = [path[:-1] for path in params if path[-1] == A]
  assert len(places) == kernels
  assert ('head',) not in places
  if (query := ('attention', 'query')) in places:  # two heads of 4
    assert params[*query, A].shape == params[*query, B].T.shape == (8, 2)
  shared = {p: leaf for p, leaf in params.items() if p[-1] not in (A, B)}
  assert_same_bits(unflatten_dict(shared), plain)
  logits = jax.jit(task.logits)(unflatten_dict(params), X, MASK)
  assert_same_bits(logits, jax.jit(base.logits)(plain, X, MASK))

  for place in places:
    params[*place, B] = normal(*params[*place, B].shape)
    change = 1.5 * (params[*place, A] @ params[*place, B])
    shared[*place, 'kernel'] += change.reshape(shared[*place, 'kernel'].shape)
  got = jax.jit(task.logits)(unflatten_dict(params), X, MASK)
  want = jax.jit(base.logits)(unflatten_dict(shared), X, MASK)
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
  assert abs(got - logits).max() > 0.1


def test_targets():
  def leaves(*targets):
    task = task_of(pfl.with_lora(Linen(), 2, targets))
    return [name for name in leaf_names(task.is_head) if A in name]

  assert leaves('*/query', 'b*') == ['attention/query/lora_a', 'body/lora_a']
  message = refused(leaves, 'head')
  assert 'lora_targets: got head' in message.replace("'", '')
  assert 'attention/query' in message
  sizes = {'image_shape': (6,), 'num_classes': 4, 'input_dtype': int}
  lstm = pfl.with_lora(CharLSTM(4), 2)
  message = refused(lambda module: pfl.task_from_module(module, **sizes), lstm)
  assert message.startswith('lora_rank: got 2')
