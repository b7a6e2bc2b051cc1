"""How models begin: as the code of their papers, and heads as FedBABU's.

FedBABU's models, and FedConcat's simple CNN and VGG-9, begin as PyTorch layers
do; FedConcat's ResNet-50 has He-normal convolutions by fan_out; SuPerFed's CNN
has Glorot-normal kernels, biases at 0 (sections "Models" of the protocols).
"""

import math

import helpers
import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from helpers import KEY, assert_same_bits

from fedjax_pfl.models.head import with_head
from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
MODELS = {  # (a small image that it reads, kernels, biases)
  'mobilenet': ((4, 4, 3), 'uniform', 'uniform'),
  'simple_cnn': ((16, 16, 1), 'uniform', 'uniform'),
  'resnet50_he': ((4, 4, 3), 'he_normal', 'uniform'),
  'superfed_cnn': ((28, 28, 1), 'glorot_normal', 'zero'),
}
ENOUGH = 5_000  # numbers whose deviation is known to a few percent
# Of a ResNet one stage, of MobileNet one block: XLA then compiles no more.
LEFT_OUT = {f'stage{s}' for s in (2, 3, 4)} | {
  f'block{b}' for b in range(1, 12)
}


def check(values, how, fan_in, fan_out):
  """Assert that the numbers are drawn as `how` says."""
  values = np.asarray(values, np.float64)
  if how == 'zero':
    assert not values.any()
    return
  bound = 1 / math.sqrt(fan_in)
  std = {
    'uniform': bound / math.sqrt(3),
    'he_normal': math.sqrt(2 / fan_out),
    'glorot_normal': math.sqrt(2 / (fan_in + fan_out)),
  }[how]
  if how == 'uniform':
    assert np.abs(values).max() <= bound * (1 + 1e-6)  # in float32
  if values.size >= ENOUGH:
    assert values.std() == pytest.approx(std, rel=0.05)
    if how != 'uniform':  # not truncated: there are tails
      assert np.abs(values).max() > 3 * std


@pytest.mark.parametrize('name', MODELS)
def test_a_model_begins_as_in_its_paper(name):
  shape, kernels, biases = MODELS[name]
  task = make_task(name, image_shape=shape, num_classes=10)

  @jax.jit
  def draw(key):
    params = task.init(key)
    return {name: params[name] for name in set(params) - LEFT_OUT}

  params = flatten_dict(draw(KEY(0)), sep='/')
  for path, values in params.items():
    folder, _, leaf = path.rpartition('/')
    if leaf == 'scale':
      assert (np.asarray(values) == 1).all(), path
    elif f'{folder}/scale' in params:  # the shift of a BatchNorm
      assert not np.asarray(values).any(), path
    else:
      kernel = params[f'{folder}/kernel']
      size = math.prod(kernel.shape[:-2])
      fans = size * kernel.shape[-2], size * kernel.shape[-1]
      how = kernels if leaf == 'kernel' else biases
      if name == 'resnet50_he' and folder == 'head':
        how = 'uniform'  # a Linear, which the code leaves as it is
      check(values, how, *fans)


# A head of 400 features and 100 classes: of 40,000 entries the standard
# deviation is known to 0.4 %, the mean to 0.5 % of it.
F, Y = 400, 100


def head_of(init, features=F, classes=Y, seed=0):
  """Return W [Y, F], as the paper writes it."""
  task = helpers.make_task(hidden=features, classes=classes)
  params = with_head(task, init, 'default').init(KEY(seed))
  return np.asarray(params['head']['kernel'], float).T


@pytest.mark.parametrize(
  'init, std',
  [
    ('xavier_uniform', 2**0.5 * (2 / (F + Y)) ** 0.5),
    ('he_uniform', (2 / F) ** 0.5),
    ('xavier_normal', 2**0.5 * (2 / (F + Y)) ** 0.5),
    ('he_normal', (2 / F) ** 0.5),
  ],
)
def test_uniform_and_normal_heads(init, std):
  w = head_of(init)
  np.testing.assert_allclose(w.std(), std, rtol=0.02)
  assert abs(w.mean()) < 0.02 * std
  is_uniform = np.abs(w).max() <= 3**0.5 * std * (1 + 1e-6)
  assert is_uniform == ('uniform' in init)


def test_orthogonal_heads():
  """Rows of length sqrt(2); of seven in five dimensions, the columns."""
  w = head_of('orthogonal')
  np.testing.assert_allclose(w @ w.T, 2 * np.eye(Y), atol=1e-5)
  w = head_of('orthogonal', features=5, classes=7)
  np.testing.assert_allclose(w.T @ w, 2 * np.eye(5), atol=1e-5)


def test_similar_heads():
  """Rows of length one; cosine = 1 / (1 + var / mean^2), var = 0.1^2 / 12."""
  w = head_of('similar')
  np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1, rtol=1e-6)
  cosines = (w @ w.T)[np.triu_indices(Y, 1)]
  want = 1 / (1 + 0.1**2 / 12 / 0.5**2)
  np.testing.assert_allclose(cosines.mean(), want, atol=1e-4)


def test_heads_are_random_and_nothing_else_moves():
  """On a real model: bits of the body and of the head's bias; the shapes."""
  assert (head_of('similar') != head_of('similar', seed=1)).any()
  task = make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  heads = ('default',) * 2, ('similar', 'default'), ('similar', 'zero')
  want, got, zero = (with_head(task, *head).init(KEY(3)) for head in heads)
  assert with_head(task, *heads[0]) is task
  assert (got['head']['kernel'] != want['head']['kernel']).all()
  assert_same_bits(zero['head']['kernel'], got['head']['kernel'])
  assert not zero['head']['bias'].any() and want['head']['bias'].all()
  got['head']['kernel'] = want['head']['kernel']
  assert_same_bits(got, want)
