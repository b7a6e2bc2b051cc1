"""Parts of a model, and sums; tests/properties has what any tree has."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

from fedjax_pfl.core import trees
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.models import registry as models


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
  assert part_mask(task, f'{blocks}+head') == part_mask(task, 'full')


@pytest.mark.parametrize(
  ('rows', 'shares', 'want'),
  [
    ([1e8, 1, -1e8], 1, 0),
    ([1e8, -1e8, 1], 1, 1),
    ([1e8, -1e8, 1, 1], 2, 2),
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
  rows = np.random.default_rng(0).standard_normal((5, 3, 3), np.float32)
  scale = jnp.array([0.5, -1, 0, 2, 0.25])
  want = np.einsum('c,cij->ij', scale, rows)
  assert_close(trees.weighted_sum(rows, scale, shares=2), want)
  with compiling_for('gpu'):
    assert_close(trees.weighted_sum(rows, scale), want)
