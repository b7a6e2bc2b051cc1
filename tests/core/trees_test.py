"""Parts of trees, their sums; tests/properties has what any tree has."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_close, make_task, refused

from fedjax_pfl.core import trees
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.models import registry as models


class Pair(NamedTuple):
  model: dict
  control: jax.Array


RNG = np.random.default_rng(0)
NAMES = ['block/bias', 'block/kernel', 'head/0', 'head/1', 'pair/model/scale']
NAMES += ['pair/control']


def make_tree(*lead):
  def array(*shape):
    return jnp.asarray(RNG.standard_normal((*lead, *shape)), jnp.float32)

  return {
    'block': {'kernel': array(3, 3), 'bias': array(3)},
    'head': [array(3, 2), array(2)],
    'pair': Pair({'scale': array()}, array(4)),
  }


def test_names_and_holes():
  """4 bytes for each of 9 + 3 + 6 + 2 + 1 + 4 numbers; holes have none."""
  tree = make_tree()
  assert trees.leaf_names(tree) == NAMES
  head = trees.select(tree, trees.path_mask(tree, lambda n: 'head/' in n))
  assert trees.leaf_names(head) == ['head/0', 'head/1']
  assert head['pair'] == Pair({'scale': None}, None)
  assert (trees.num_bytes(tree), trees.num_bytes(head)) == (100, 32)
  assert trees.num_bytes({'a': jnp.zeros(3, jnp.uint8), 'b': None}) == 3
  assert trees.num_bytes(jax.eval_shape(make_tree)) == 100
  assert trees.num_bytes(jax.random.key_data(KEY(0))) == 8


@pytest.mark.parametrize(('word', 'hits'), [('', 6), ('tail', 0)])
def test_mask_of_all_or_nothing_lists_the_leaves(word, hits):
  message = refused(trees.path_mask, make_tree(), lambda name: word in name)
  assert f'{hits} of 6 leaves selected' in message
  assert ', '.join(NAMES) in message
  assert 'is the last layer called "head"?' in message


def test_parts_of_a_model_are_complements():
  task = make_task()
  head, body = (part_mask(task, part) for part in ('head', 'body'))
  assert head == task.is_head == trees.invert(body)
  assert all(jax.tree.leaves(part_mask(task, 'full')))
  message = refused(part_mask, task, 'bodi')
  assert message.startswith("part: got 'bodi'")
  assert 'Choices: full, body, head (did you mean body?)' in message


def test_part_may_name_layers():
  """Those of the paper's Conv12: convolution and normalisation of two blocks.

  Order and repetition do not matter; all layers are the whole model.
  """
  task = models.make_task('convnet4', image_shape=(32, 32, 3), num_classes=10)
  mask = part_mask(task, 'conv2+bn1+conv1+bn2+bn1')
  assert trees.leaf_names(trees.select(mask, mask)) == [
    *('bn1/bias', 'bn1/scale', 'bn2/bias', 'bn2/scale'),
    *('conv1/bias', 'conv1/kernel', 'conv2/bias', 'conv2/kernel'),
  ]
  blocks = '+'.join(f'conv{j}+bn{j}' for j in (1, 2, 3, 4))
  assert part_mask(task, blocks) == part_mask(task, 'body')
  assert part_mask(task, f'{blocks}+head') == part_mask(task, 'full')
  message = refused(part_mask, task, 'conv1+bn5', 'hp.trainable')
  assert message.startswith("hp.trainable: got 'bn5'")
  assert 'conv1, conv2, conv3, conv4 (did you mean bn4?)' in message


def test_weighted_mean_of_integers_and_holes():
  """Counts are integers; the dtype stays that of the leaves."""
  stacked = {'w': jnp.array([[1.0, 8.0], [5.0, 0.0]]), 'hole': None}
  got = trees.weighted_mean(stacked, jnp.array([3, 1]))
  assert got['hole'] is None
  assert got['w'].tolist() == [2.0, 6.0] and got['w'].dtype == jnp.float32


@pytest.mark.parametrize(
  ('rows', 'shares', 'want'),
  [
    ([1e8, 1, -1e8], 1, 0),
    ([1e8, -1e8, 1], 1, 1),
    ([1e8, -1e8, 1, 1], 2, 2),
    ([1e8, 1, -1e8, 1], 2, 0),
    ([1e8, 1, 1, -1e8, 1], 2, 0),
  ],
)
def test_sums_are_in_the_order_of_the_rows(rows, shares, want):
  """float32 has 24 bits: 1e8 + 1 is 1e8.

  The shares of devices are added up first; the last may have fewer rows.
  """
  scale = jnp.ones(len(rows))
  assert trees.weighted_sum(np.array(rows, np.float32), scale, shares) == want


def test_weighted_sum_is_the_same_for_every_platform():
  stacked, scale = make_tree(5), jnp.array([0.5, -1, 0, 2, 0.25])
  want = trees.weighted_sum(stacked, scale)
  with compiling_for('gpu'):
    assert_close(trees.weighted_sum(stacked, scale), want)
  for shares in (1, 2, 5):
    assert_close(trees.weighted_sum(stacked, scale, shares), want)
  kernel = np.asarray(stacked['block']['kernel'])
  assert_close(want['block']['kernel'], np.einsum('c,cij->ij', scale, kernel))
