"""What public checkpoints call the parameters of our models.

ResNets have torchvision's names, which are timm's, too; vision transformers
have timm's or torchvision's. A name of ours stays as it is.
"""

import re
from collections.abc import Callable, Mapping

import jax
import numpy as np

Rules = tuple[tuple[str, str], ...]  # patterns and what takes their place

RESNET: Rules = (
  (r'^conv1\.', 'stem.'),
  (r'^bn1\.', 'stem_bn.'),
  (r'^layer(\d)\.(\d+)\.', r'stage\1.block\2.'),
  (r'\.downsample\.0\.', '.shortcut.'),
  (r'\.downsample\.1\.', '.shortcut_bn.'),
  (r'^fc\.', 'head.'),
)
VIT: Rules = (
  (r'^(patch_embed\.proj|conv_proj)\.', 'patches.'),
  (r'^cls_token$', 'class_token'),
  (r'^(pos_embed|encoder\.pos_embedding)$', 'positions'),
  (r'^(?:blocks\.|encoder\.layers\.encoder_layer_)(\d+)\.', r'block\1.'),
  (r'\.ln_(\d)\.', r'.norm\1.'),
  (r'\.(attn\.qkv\.|self_attention\.in_proj_)', '.qkv.'),
  (r'\.(attn\.proj|self_attention\.out_proj)\.', '.out.'),
  (r'\.mlp\.(fc1|0|linear_1)\.', '.fc1.'),
  (r'\.mlp\.(fc2|3|linear_2)\.', '.fc2.'),
  (r'^encoder\.ln\.', 'norm.'),
  (r'^heads\.head\.', 'head.'),
)
# By the name of the model. What else a file has is of another network.
PUBLIC: Mapping[str, Rules] = {
  'resnet18_imagenet': RESNET,
  'resnet50_imagenet': RESNET,
  'vit_b16': VIT,
  'vit_ti16': VIT,
}


def renaming(model: str) -> Callable[[str], str]:
  """Return the function from a name in the file to the name in this model.

  >>> renaming('resnet18_imagenet')('layer2.0.downsample.1.running_var')
  'stage2.block0.shortcut_bn.running_var'
  """

  def rename(name: str) -> str:
    for pattern, ours in PUBLIC.get(model, ()):
      name = re.sub(pattern, ours, name)
    return name

  return rename


def is_idle(name: str) -> bool:
  """Return whether the model may lack this tensor of its own network."""
  ends = 'num_batches_tracked', 'running_mean', 'running_var'
  return name.startswith('head/') or name.endswith(ends)


def fitted(
  leaves: Mapping[str, np.ndarray], shapes: Mapping[str, tuple]
) -> dict[str, np.ndarray]:
  """Return the leaves without the first axis of length 1 that tokens have.

  Positions of a square of other patches are interpolated, as timm does it.
  """
  leaves = dict(leaves)
  for name in {'class_token', 'positions'} & {*leaves} & {*shapes}:
    leaf = leaves[name]
    leaf = leaf[0] if leaf.ndim == 3 and len(leaf) == 1 else leaf
    if name == 'positions' and leaf.ndim == 2:
      leaf = _positions(leaf, shapes[name])
    leaves[name] = leaf
  return leaves


def _positions(leaf: np.ndarray, shape: tuple) -> np.ndarray:
  """Return positions [1 + g g, F] as [1 + h h, F], by a cubic filter."""
  old, new = (round((size - 1) ** 0.5) for size in (len(leaf), shape[0]))
  is_square = old**2 == len(leaf) - 1 and new**2 == shape[0] - 1
  if not is_square or old == new or leaf.shape[1:] != shape[1:]:
    return leaf
  grid = leaf[1:].reshape(old, old, -1)
  grid = jax.image.resize(grid, (new, new, grid.shape[-1]), 'cubic')
  return np.concatenate([leaf[:1], np.reshape(grid, (new * new, -1))])
