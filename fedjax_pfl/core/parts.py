"""The parts of a model that a method trains, shares or fine-tunes."""

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Mask, Task

PARTS = ('full', 'body', 'head')


def part_mask(task: Task, part: str, field: str = 'part') -> Mask:
  """Return the mask of 'full', 'body', 'head', or layers: 'conv1+bn1'.

  Layers are the names at the top of the parameters; an error names `field`, the
  user's setting.
  """
  masks = {
    'full': trees.everything(task.is_head),
    'body': trees.invert(task.is_head),
    'head': task.is_head,
  }
  if part in masks:
    return masks[part]
  layers, known = part.split('+'), trees.layer_names(task.is_head)
  for layer in layers:
    if layer not in known:
      raise bad_input(
        field,
        got=layer,
        expected="a part of the model, or names of its layers joined by '+'",
        choices=dict.fromkeys((*PARTS, *known)),
        cause='a typing error, or a layer of another model',
      )
  return trees.layer_mask(task.is_head, layers)
