"""Robust means: what they have in common; the numbers are golden cases."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, long

from fedjax_pfl.around.robust import RULES, Known, robust_mean

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
N, LIARS, ABSENT = 11, 3, 2
THERE = np.arange(N + ABSENT) < N
every_rule = pytest.mark.parametrize('rule', RULES)
# About the server's model, or so in the end of infinitely many steps.
MOVES = [name for name in RULES if name != 'centred_clipping']


def rows_of(seed=0):
  """Return changes of which the last two are of nobody."""
  own = np.random.default_rng(seed)
  return own.normal(size=(N + ABSENT, 300)) + 2 * own.normal(size=300)


def tree_of(rows):
  rows = jnp.asarray(rows)
  return {'a': rows[:, :1], 'b': rows[:, 1:].reshape(-1, 23, 13)}


@functools.cache
def compiled(rule, before):
  def run(rows, there, trusted):
    known = Known(None, there, LIARS, trusted)
    return robust_mean(rule, rows, known, before, KEY(1))

  return jax.jit(run)


def mean(rule, rows, there=THERE, before=(), trusted=0):
  trusted = jnp.arange(len(there)) == trusted
  return compiled(rule, before)(rows, jnp.asarray(there), trusted)


def flat(tree):
  leaves = jax.tree.leaves(tree)
  return np.concatenate([np.reshape(leaf, -1) for leaf in leaves])


@every_rule
def test_the_order_of_rows_and_rows_of_nobody_do_not_matter(rule):
  order = np.random.default_rng(0).permutation(N + ABSENT)
  found, parts = mean(rule, tree_of(rows_of()))
  shuffled = jax.tree.map(lambda leaf: leaf[order], tree_of(rows_of()))
  place = order.tolist().index(0)
  again, others = mean(rule, shuffled, THERE[order], trusted=place)
  np.testing.assert_allclose(flat(again), flat(found), atol=1e-9)
  np.testing.assert_allclose(others, parts[order], atol=1e-9)
  assert not parts[N:].any() and parts.sum() <= 1 + 1e-9
  few = jax.tree.map(lambda leaf: leaf[:N], tree_of(rows_of()))
  alone, _ = mean(rule, few, THERE[:N])
  np.testing.assert_allclose(flat(alone), flat(found), atol=1e-9)


@pytest.mark.parametrize('rule', MOVES)
def test_what_all_have_in_common_comes_through(rule):
  found, _ = mean(rule, tree_of(rows_of()))
  moved = jax.tree.map(lambda leaf: leaf + 7, tree_of(rows_of()))
  again, _ = mean(rule, moved)
  np.testing.assert_allclose(flat(again), flat(found) + 7, atol=1e-3)


LIES = {
  'far away': 1e9 * np.ones((LIARS, 1)),
  'apart': 1e9 * np.random.default_rng(3).normal(size=(LIARS, 300)),
  'infinite': np.inf * np.ones((LIARS, 1)),
  'no numbers': np.nan * np.ones((LIARS, 1)),
  'like one another': 5 + np.zeros((LIARS, 300)),
}


@pytest.mark.parametrize(
  ('dtype', 'before'),
  [
    (np.float32, ()),
    (np.float64, ('mixing',)),
    long(np.float64, ()),
    long(np.float32, ('mixing',)),
    long(np.float32, ('adaptive_clipping', 'mixing')),
  ],
)
@every_rule
def test_liars_move_it_by_no_more_than_the_honest_are_apart(
  rule, dtype, before
):
  rows = rows_of().astype(dtype)
  honest = rows[LIARS:N]
  apart = np.linalg.norm(honest[:, None] - honest, axis=-1).max()
  for name, lies in LIES.items():
    rows[:LIARS] = lies
    found, parts = mean(rule, tree_of(rows), before=before, trusted=LIARS)
    moved = np.linalg.norm(flat(found) - honest.mean(0))
    assert moved < apart, (name, moved, apart)
    if name != 'like one another':
      assert parts[:LIARS].max() < 1e-6 or before or 'clip' in rule, name
