"""Parts of trees, their means, and their rows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_close, assert_same_bits

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.target import compiling_for


class Pair(NamedTuple):
  model: dict
  control: jax.Array


RNG = np.random.default_rng(0)


def make_tree(*lead):
  def array(*shape):
    return jnp.asarray(RNG.standard_normal((*lead, *shape)), jnp.float32)

  return {
    'block': {'conv1': {'kernel': array(3, 3), 'bias': array(3)}},
    'head': [array(3, 2), array(2)],
    'pair': Pair({'scale': array()}, array(4)),
  }


NAMES = [
  'block/conv1/bias',
  'block/conv1/kernel',
  'head/0',
  'head/1',
  'pair/model/scale',
  'pair/control',
]


def in_head(name):
  return name.startswith('head/')


def test_leaf_names():
  assert trees.leaf_names(make_tree()) == NAMES


def test_layers_are_the_names_at_the_top():
  assert trees.layer_names(make_tree()) == ['block', 'head', 'pair']
  mask = trees.layer_mask(make_tree(), ['pair', 'block'])
  assert jax.tree.structure(mask) == jax.tree.structure(make_tree())
  assert jax.tree.leaves(mask) == [True, True, False, False, True, True]


def test_path_mask():
  mask = trees.path_mask(make_tree(), in_head)
  assert jax.tree.structure(mask) == jax.tree.structure(make_tree())
  hits = dict(zip(NAMES, jax.tree.leaves(mask), strict=True))
  assert {name for name, hit in hits.items() if hit} == {'head/0', 'head/1'}
  assert all(type(hit) is bool for hit in hits.values())


@pytest.mark.parametrize(
  'matches, hits', [(lambda name: True, 6), (lambda name: 'tail' in name, 0)]
)
def test_mask_of_all_or_nothing_lists_the_leaves(matches, hits):
  with pytest.raises(BadInput) as error:
    trees.path_mask(make_tree(), matches)
  sentence = str(error.value)
  assert f'{hits} of 6 leaves selected' in sentence
  assert ', '.join(NAMES) in sentence
  assert 'is the last layer called "head"?' in sentence


def test_everything_and_invert():
  tree = make_tree()
  assert jax.tree.leaves(trees.everything(tree)) == [True] * 6
  mask = trees.path_mask(tree, in_head)
  assert jax.tree.leaves(trees.invert(mask)) == [
    not hit for hit in jax.tree.leaves(mask)
  ]
  assert trees.invert(trees.invert(mask)) == mask


def test_select_leaves_holes():
  tree = make_tree()
  head = trees.select(tree, trees.path_mask(tree, in_head))
  assert trees.leaf_names(head) == ['head/0', 'head/1']
  assert head['block']['conv1'] == {'kernel': None, 'bias': None}
  assert head['pair'] == Pair({'scale': None}, None)
  assert_same_bits(head['head'], tree['head'])


def test_combine_prefers_the_first():
  tree, other = make_tree(), make_tree()
  mask = trees.path_mask(tree, in_head)
  got = trees.combine(trees.select(tree, mask), other)
  assert_same_bits(got['head'], tree['head'])
  assert_same_bits(got['block'], other['block'])


def test_segment_mean_is_the_weighted_mean_of_each_segment():
  """Rows 1 and 3 are segment 2; segment 1 has no row, segment 3 no weight."""
  stacked, weights = make_tree(5), jnp.array([3, 2, 1, 6, 0])
  segments, other = jnp.array([0, 2, 0, 2, 3]), make_tree(4)
  got = trees.segment_mean(stacked, weights, segments, other)
  for segment, rows in {0: [0, 2], 2: [1, 3]}.items():
    rows = jnp.array(rows)
    want = trees.weighted_mean(trees.gather(stacked, rows), weights[rows])
    assert_close(trees.gather(got, segment), want)
  for segment in (1, 3):
    assert_same_bits(trees.gather(got, segment), trees.gather(other, segment))


def test_weighted_mean_of_integers_and_holes():
  """Counts are integers; the dtype stays that of the leaves."""
  stacked = {'w': jnp.array([[1.0, 8.0], [5.0, 0.0]]), 'hole': None}
  got = trees.weighted_mean(stacked, jnp.array([3, 1]))
  assert got['hole'] is None
  assert got['w'].tolist() == [2.0, 6.0]
  assert got['w'].dtype == jnp.float32


def test_weighted_sum_is_in_the_order_of_the_rows():
  """float32 has 24 bits: 1e8 + 1 is 1e8."""
  rows = np.array([1e8, 1, -1e8], np.float32)
  for order, want in (((0, 1, 2), 0.0), ((0, 2, 1), 1.0)):
    assert trees.weighted_sum(rows[np.array(order)], jnp.ones(3)) == want


@pytest.mark.parametrize(
  'rows, want',
  [([1e8, -1e8, 1, 1], 2), ([1e8, 1, -1e8, 1], 0), ([1e8, 1, 1, -1e8, 1], 0)],
)
def test_shares_of_rows_are_added_up_first(rows, want):
  """The last rows are those of the last device, which may have fewer."""
  scale = jnp.ones(len(rows))
  got = trees.weighted_sum(np.array(rows, np.float32), scale, shares=2)
  assert got == want


def test_weighted_sum_is_the_same_for_every_platform():
  stacked, scale = make_tree(5), jnp.array([0.5, -1, 0, 2, 0.25])
  want = trees.weighted_sum(stacked, scale)
  with compiling_for('gpu'):
    assert_close(trees.weighted_sum(stacked, scale), want)
  for shares in (1, 2, 5):
    assert_close(trees.weighted_sum(stacked, scale, shares), want)
  kernel = np.asarray(stacked['block']['conv1']['kernel'])
  by_hand = np.einsum('c,cij->ij', scale, kernel)
  assert_close(want['block']['conv1']['kernel'], by_hand)


def test_num_bytes():
  """4 bytes for each of 9 + 3 + 6 + 2 + 1 + 4 numbers; holes have none."""
  tree = make_tree()
  assert trees.num_bytes(tree) == 100
  head = trees.select(tree, trees.path_mask(tree, in_head))
  assert trees.num_bytes(head) == 32
  assert trees.num_bytes(None) == 0
  assert trees.num_bytes({'a': jnp.zeros(3, jnp.uint8), 'b': None}) == 3
  assert trees.num_bytes(jax.eval_shape(make_tree)) == 100
  assert trees.num_bytes(jax.random.key_data(KEY(0))) == 8
