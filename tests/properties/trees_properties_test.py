"""Properties of the parts and the means of trees."""

from typing import NamedTuple

import jax
import numpy as np
import pytest
from helpers import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

from fedjax_pfl.core import trees

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROWS = 5
DTYPES = (np.float32, np.uint8)


class Pair(NamedTuple):
  first: object
  second: object


@st.composite
def arrays(draw, lead=(), dtypes=DTYPES):
  """Draw an array of one of a few shapes: each compiles anew."""
  shape = (*lead, *draw(st.sampled_from([(), (3,), (0, 2)])))
  rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
  return (8 * rng.standard_normal(shape)).astype(draw(st.sampled_from(dtypes)))


def tree_of(leaves):
  """Draw what a state may be: dicts, lists and NamedTuples, nested."""
  names = st.text('abc_1', min_size=1, max_size=3)
  return st.recursive(
    leaves,
    lambda inner: st.one_of(
      st.dictionaries(names, inner, min_size=1, max_size=3),
      st.lists(inner, min_size=1, max_size=3),
      st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
  )


@st.composite
def masked(draw):
  """Draw a tree and a mask of it."""
  tree = draw(tree_of(arrays()))
  return tree, jax.tree.map(lambda _: draw(st.booleans()), tree)


@given(masked())
def test_two_parts_are_the_whole_in_leaves_and_bytes(pair):
  tree, mask = pair
  part = trees.select(tree, mask)
  rest = trees.select(tree, trees.invert(mask))
  for one, other in ((part, rest), (rest, part), (part, tree)):
    assert_same_bits(trees.combine(one, other), tree)
  hits, names = jax.tree.leaves(mask), trees.leaf_names(tree)
  assert len(set(names)) == len(names) == len(hits)
  own = [name for name, hit in zip(names, hits, strict=True) if hit]
  assert trees.leaf_names(part) == own
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
  assert trees.num_bytes(part) + trees.num_bytes(rest) == size


WEIGHTS = st.lists(
  st.one_of(st.just(0.0), st.floats(0.25, 1e4, width=32)),
  min_size=ROWS,
  max_size=ROWS,
).filter(any)
STACKED = tree_of(arrays(lead=(ROWS,), dtypes=(np.float32,)))


@given(
  STACKED, WEIGHTS, st.lists(st.integers(0, 2), min_size=ROWS, max_size=ROWS)
)
def test_means_are_numpys(stacked, weights, segments):
  """Of all rows, and of those of a segment, or what is there without any."""
  weights, segments = np.array(weights, np.float32), np.array(segments)
  other = jax.tree.map(lambda leaf: leaf[:3] + 1, stacked)
  got = (
    trees.weighted_mean(stacked, weights),
    trees.segment_mean(stacked, weights, segments, other),
  )
  for mean, means, leaf, rest in zip(
    *map(jax.tree.leaves, (*got, stacked, other)), strict=True
  ):
    want = np.average(leaf.astype(float), axis=0, weights=weights)
    np.testing.assert_allclose(mean, want, rtol=1e-5, atol=1e-5)
    assert mean.dtype == leaf.dtype and mean.shape == leaf.shape[1:]
    for segment in range(3):
      own, want = segments == segment, rest[segment]
      if weights[own].any():
        want = np.average(leaf[own], axis=0, weights=weights[own])
      np.testing.assert_allclose(means[segment], want, rtol=1e-5, atol=1e-5)
