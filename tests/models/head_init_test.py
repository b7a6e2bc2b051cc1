"""The ways in which a head may begin, by their closed forms.

A head of 400 features and 100 classes: of 40,000 entries the standard
deviation is known to 0.4 %, the mean to 0.5 % of it.
"""

import functools

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_same_bits

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.models.head_init import HEAD_INITS, with_head
from fedjax_pfl.models.task import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
F, Y = 400, 100


@functools.cache
def head_of(init, bias='default', features=F, classes=Y, seed=0):
  """Return W [Y, F], as the paper writes it, and the bias of a head."""
  task = helpers.make_task(hidden=features, classes=classes)
  head = with_head(task, init, bias).init(KEY(seed))['head']
  return np.asarray(head['kernel'], float).T, np.asarray(head['bias'])


def cosines(w):
  """Return those of all pairs of different rows."""
  unit = w / np.linalg.norm(w, axis=1, keepdims=True)
  return (unit @ unit.T)[np.triu_indices(len(w), 1)]


@pytest.mark.parametrize(
  'init, bound',
  [
    ('xavier_uniform', 2**0.5 * (6 / (F + Y)) ** 0.5),
    ('he_uniform', (6 / F) ** 0.5),
  ],
)
def test_uniform(init, bound):
  w, _ = head_of(init)
  assert 0.999 * bound < np.abs(w).max() <= bound * (1 + 1e-6)
  np.testing.assert_allclose(w.std(), bound / 3**0.5, rtol=0.02)
  assert abs(w.mean()) < 0.02 * bound


@pytest.mark.parametrize(
  'init, std',
  [
    ('xavier_normal', 2**0.5 * (2 / (F + Y)) ** 0.5),
    ('he_normal', (2 / F) ** 0.5),
  ],
)
def test_normal(init, std):
  """Not cut off: of 40,000 entries 108 are expected beyond 3 std, +- 10.4."""
  w, _ = head_of(init)
  np.testing.assert_allclose(w.std(), std, rtol=0.02)
  assert abs(w.mean()) < 0.02 * std
  assert abs((np.abs(w) > 3 * std).sum() - 108) < 5 * 10.4


def test_orthogonal():
  """W W^T = 2 I: rows are orthogonal and of length sqrt(2)."""
  w, _ = head_of('orthogonal')
  np.testing.assert_allclose(w @ w.T, 2 * np.eye(Y), atol=1e-5)


def test_orthogonal_with_more_classes_than_features():
  """Seven rows in five dimensions: the columns are orthogonal instead."""
  w, _ = head_of('orthogonal', features=5, classes=7)
  np.testing.assert_allclose(w.T @ w, 2 * np.eye(5), atol=1e-5)


def test_similar():
  """Rows of length one; cosine = 1 / (1 + var / mean^2), var = 0.1^2 / 12."""
  w, _ = head_of('similar')
  np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1, rtol=1e-6)
  want = 1 / (1 + 0.1**2 / 12 / 0.5**2)
  assert round(want, 4) == 0.9967
  np.testing.assert_allclose(cosines(w).mean(), want, atol=1e-4)
  lows, highs = w.min(1), w.max(1)  # from 0.45 and 0.55, by one divisor a row
  np.testing.assert_allclose(lows / highs, 0.45 / 0.55, rtol=0.01)


@pytest.mark.parametrize('init', HEAD_INITS)
def test_heads_are_random_and_a_seeds_own(init):
  w, _ = head_of(init)
  other, _ = head_of(init, seed=1)
  assert (w != other).any()
  assert len(np.unique(w)) > 0.9 * w.size


def test_zero_bias_alone():
  w, bias = head_of('default', 'zero')
  want, drawn = head_of('default')
  assert_same_bits(w, want)
  assert drawn.all() and not bias.any() and bias.shape == drawn.shape


@pytest.mark.parametrize('init', HEAD_INITS[1:])
def test_nothing_else_moves(init):
  """On a real model: bits of the body and of the head's bias; the shapes."""
  task = make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  want, got = task.init(KEY(3)), with_head(task, init).init(KEY(3))
  assert (got['head']['kernel'] != want['head']['kernel']).all()
  got['head']['kernel'] = want['head']['kernel']
  assert_same_bits(got, want)
  again = with_head(task, init).init(KEY(3))
  zero = with_head(task, init, 'zero').init(KEY(3))
  assert_same_bits(zero['head']['kernel'], again['head']['kernel'])
  assert not jnp.any(zero['head']['bias'])


def test_default_is_the_task_itself():
  task = helpers.make_task()
  assert with_head(task) is task


def test_it_traces():
  task = with_head(helpers.make_task(), 'orthogonal', 'zero')
  shapes = jax.eval_shape(task.init, KEY(0))
  assert shapes['head']['kernel'].shape == (5, 3)


@pytest.mark.parametrize(
  'options, words',
  [
    ({'init': 'he'}, "head_init: got 'he', expected a known initialisation"),
    ({'init': 'xavier_unifrom'}, 'did you mean xavier_uniform?'),
    ({'bias': 'zeros'}, 'Choices: default, zero (did you mean zero?)'),
  ],
)
def test_unknown_words(options, words):
  with pytest.raises(BadInput) as error:
    with_head(helpers.make_task(), **options)
  assert words in str(error.value)
  assert 'Likely cause: ' in str(error.value)
