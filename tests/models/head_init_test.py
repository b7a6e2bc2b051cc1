"""The ways in which a head may begin, by their closed forms.

A head of 400 features and 100 classes: of 40,000 entries the standard
deviation is known to 0.4 %, the mean to 0.5 % of it.
"""

import functools

import helpers
import numpy as np
import pytest
from helpers import KEY, assert_same_bits, refused

from fedjax_pfl.models.head_init import HEAD_INITS, with_head
from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
F, Y = 400, 100


@functools.cache
def head_of(init, bias='default', features=F, classes=Y, seed=0):
  """Return W [Y, F], as the paper writes it, and the bias of a head."""
  task = helpers.make_task(hidden=features, classes=classes)
  head = with_head(task, init, bias).init(KEY(seed))['head']
  return np.asarray(head['kernel'], float).T, np.asarray(head['bias'])


@pytest.mark.parametrize(
  'init, bound, std',
  [
    ('xavier_uniform', 2**0.5 * (6 / (F + Y)) ** 0.5, None),
    ('he_uniform', (6 / F) ** 0.5, None),
    ('xavier_normal', None, 2**0.5 * (2 / (F + Y)) ** 0.5),
    ('he_normal', None, (2 / F) ** 0.5),
  ],
)
def test_uniform_and_normal(init, bound, std):
  w, _ = head_of(init)
  if bound:
    assert 0.999 * bound < np.abs(w).max() <= bound * (1 + 1e-6)
    std = bound / 3**0.5
  else:  # not cut off: 108 entries are expected beyond 3 std, +- 10.4
    assert abs((np.abs(w) > 3 * std).sum() - 108) < 5 * 10.4
  np.testing.assert_allclose(w.std(), std, rtol=0.02)
  assert abs(w.mean()) < 0.02 * std


def test_orthogonal():
  """Rows of length sqrt(2); of seven in five dimensions, the columns."""
  w, _ = head_of('orthogonal')
  np.testing.assert_allclose(w @ w.T, 2 * np.eye(Y), atol=1e-5)
  w, _ = head_of('orthogonal', features=5, classes=7)
  np.testing.assert_allclose(w.T @ w, 2 * np.eye(5), atol=1e-5)


def test_similar():
  """Rows of length one; cosine = 1 / (1 + var / mean^2), var = 0.1^2 / 12."""
  w, _ = head_of('similar')
  np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1, rtol=1e-6)
  want = 1 / (1 + 0.1**2 / 12 / 0.5**2)
  assert round(want, 4) == 0.9967
  cosines = (w @ w.T)[np.triu_indices(Y, 1)]
  np.testing.assert_allclose(cosines.mean(), want, atol=1e-4)
  lows, highs = w.min(1), w.max(1)  # from 0.45 and 0.55, by one divisor a row
  np.testing.assert_allclose(lows / highs, 0.45 / 0.55, rtol=0.01)


@pytest.mark.parametrize('init', HEAD_INITS)
def test_heads_are_random_and_a_seeds_own(init):
  w, _ = head_of(init)
  other, _ = head_of(init, seed=1)
  assert (w != other).any()
  assert len(np.unique(w)) > 0.9 * w.size


@pytest.mark.parametrize('init', HEAD_INITS[1:])
def test_nothing_else_moves(init):
  """On a real model: bits of the body and of the head's bias; the shapes."""
  task = make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  want, got = task.init(KEY(3)), with_head(task, init).init(KEY(3))
  zero = with_head(task, init, 'zero').init(KEY(3))
  assert (got['head']['kernel'] != want['head']['kernel']).all()
  assert_same_bits(zero['head']['kernel'], got['head']['kernel'])
  assert not zero['head']['bias'].any() and want['head']['bias'].all()
  got['head']['kernel'] = want['head']['kernel']
  assert_same_bits(got, want)


def test_zero_bias_alone_and_the_default():
  w, bias = head_of('default', 'zero')
  want, drawn = head_of('default')
  assert_same_bits(w, want)
  assert drawn.all() and not bias.any() and bias.shape == drawn.shape
  task = helpers.make_task()
  assert with_head(task) is task


@pytest.mark.parametrize(
  'options, words',
  [
    ({'init': 'he'}, "head_init: got 'he', expected a known initialisation"),
    ({'init': 'xavier_unifrom'}, 'did you mean xavier_uniform?'),
    ({'bias': 'zeros'}, 'Choices: default, zero (did you mean zero?)'),
  ],
)
def test_unknown_words(options, words):
  assert words in refused(lambda: with_head(helpers.make_task(), **options))
