"""Masks of the parts of a model."""

import jax
import pytest
from helpers import make_task

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.parts import part_mask
from fedjax_pfl.models import registry as models

TASK = make_task()


def test_unknown_part():
  with pytest.raises(BadInput, match=r'did you mean body\?') as error:
    part_mask(TASK, 'bodi')
  assert "part: got 'bodi'" in str(error.value)
  assert 'Choices: full, body, head' in str(error.value)


def names_under(mask):
  chosen = zip(trees.leaf_names(mask), jax.tree.leaves(mask), strict=True)
  return [name for name, selected in chosen if selected]


def test_part_may_name_layers():
  """Those of the paper's Conv12: convolution and normalisation of two blocks.

  Order and repetition do not matter; all layers are the whole model.
  """
  task = models.make_task('convnet4', image_shape=(32, 32, 3), num_classes=10)
  mask = part_mask(task, 'conv2+bn1+conv1+bn2+bn1')
  assert names_under(mask) == [
    *('bn1/bias', 'bn1/scale', 'bn2/bias', 'bn2/scale'),
    *('conv1/bias', 'conv1/kernel', 'conv2/bias', 'conv2/kernel'),
  ]
  blocks = '+'.join(f'conv{j}+bn{j}' for j in (1, 2, 3, 4))
  body = part_mask(task, 'body')
  assert part_mask(task, blocks) == body
  full = part_mask(task, 'full')
  assert part_mask(task, f'{blocks}+head') == full


def test_layer_that_is_not_there():
  task = models.make_task('convnet4', image_shape=(32, 32, 3), num_classes=10)
  with pytest.raises(BadInput) as error:
    part_mask(task, 'conv1+bn5', 'hp.trainable')
  assert str(error.value) == (
    "hp.trainable: got 'bn5', expected a part of the model, or names of its "
    "layers joined by '+'. Choices: full, body, head, bn1, bn2, bn3, bn4, "
    'conv1, conv2, conv3, conv4 (did you mean bn4?). Likely cause: a typing '
    'error, or a layer of another model.'
  )


def test_parts_are_complements():
  head, body = (part_mask(TASK, p) for p in ('head', 'body'))
  assert head == TASK.is_head == trees.invert(body)
  assert all(jax.tree.leaves(part_mask(TASK, 'full')))
