"""Checkpoints of safetensors, and what public ones call our parameters.

ResNets have torchvision's names, which are timm's, too; vision transformers
have timm's or torchvision's. A name of ours stays as it is.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import jax
import numpy as np

from fedjax_pfl.core.errors import bad_input, check_installed
from fedjax_pfl.models.lora import is_adapter

SUFFIX = '.safetensors'
SHOWN = 5  # leaves that a line names
# Of what PyTorch calls `weight`: the first that the layer has.
WEIGHTS = 'kernel', 'scale', 'embedding'
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


def load_safetensors(
  path: str,
  model: str,
  shapes: Mapping[str, tuple],
  log: Callable[[str], None],
) -> dict[str, np.ndarray]:
  """Return the leaves that fit, for a model with leaves of these shapes.

    block0.qkv.weight   is   block0/qkv/kernel
    norm.weight         is   norm/scale, a layer without a kernel
    embed.weight        is   embed/embedding

  A `weight` is PyTorch's: as a kernel, [out, in] becomes [in, out], and
  [out, in, h, w] becomes [h, w, in, out]. A name with /kernel is taken as it
  is, and so is one that is no leaf; in a file for a public model this is
  refused, for the first blocks of a deeper network would fit.
  """
  check_installed('init_from', 'safetensors')
  from safetensors import SafetensorError
  from safetensors.numpy import load_file

  if not Path(path).is_file():
    raise bad_input(
      'init_from',
      got=path,
      expected=f'a file {SUFFIX}',
      choices=sorted(map(str, Path(path).parent.glob(f'*{SUFFIX}'))),
    )
  try:
    tensors = load_file(path)
  except (SafetensorError, ValueError, KeyError) as error:
    raise bad_input(
      'init_from',
      got=f'{path}: {error}',
      expected='a file that safetensors wrote',
    ) from error
  leaves = dict(
    _leaf(our_name(name, model), array, shapes)
    for name, array in tensors.items()
  )
  if model in PUBLIC:
    for name in {'class_token', 'positions'} & {*leaves} & {*shapes}:
      leaves[name] = _fitted(name, leaves[name], shapes[name])
    known = lambda name: name in shapes or _is_idle(name)
    if foreign := [name for name in leaves if not known(name)]:
      raise bad_input(
        'init_from',
        got=f'{path} with what {model} has not: {_first(foreign)}',
        expected=f'the tensors of {model} alone, by the names of torchvision '
        'or timm',
      )
  return _without_misfits(path, leaves, shapes, log)


def our_name(name: str, model: str) -> str:
  """Return what a name in the file is in this model.

  >>> our_name('layer2.0.downsample.1.running_var', 'resnet18_imagenet')
  'stage2.block0.shortcut_bn.running_var'
  """
  for pattern, ours in PUBLIC.get(model, ()):
    name = re.sub(pattern, ours, name)
  return name


def _without_misfits(
  path: str,
  leaves: dict[str, np.ndarray],
  shapes: Mapping[str, tuple],
  log: Callable[[str], None],
) -> dict[str, np.ndarray]:
  """Return the leaves of a checkpoint that fit; all have to but the head."""
  has = lambda name, shape: name in leaves and leaves[name].shape == shape
  fit = {name: leaves[name] for name in shapes if has(name, shapes[name])}
  drawn = sorted({*shapes} - {*fit}, key=lambda name: (is_adapter(name), name))
  misfits = _first(
    f'{name} {[*leaves[name].shape]} in place of {[*shapes[name]]}'
    if name in leaves
    else f'no {name}'
    for name in drawn
  )
  if any(not is_adapter(name) and name[:5] != 'head/' for name in drawn):
    others = [name for name in leaves if name not in shapes][:SHOWN]
    raise bad_input(
      'init_from',
      got=f'{path} with {misfits}',
      expected='every leaf of the model but its head, in its shape',
      choices=others or None,
    )
  if drawn:
    log(
      f'init_from: {misfits}, which {"begin" if drawn[1:] else "begins"} fresh'
    )
  idle = 'num_batches_tracked'  # of PyTorch's BatchNorm: nothing reads it
  unused = [name for name in leaves if name not in shapes]
  if unused := [name for name in unused if not name.endswith(idle)]:
    log(f'init_from: not used, for the model has no {_first(unused)}')
  return fit


def _first(names: Iterable[str]) -> str:
  """Return the first names, and how many more there are."""
  names = list(names)
  more = f', and {len(names) - SHOWN} more' * (len(names) > SHOWN)
  return ', '.join(names[:SHOWN]) + more


def _leaf(name: str, array: np.ndarray, shapes) -> tuple[str, np.ndarray]:
  name = name.replace('.', '/')
  layer, _, last = name.rpartition('/')
  if last != 'weight':
    return name, array
  names = [name for name in WEIGHTS if f'{layer}/{name}' in shapes]
  if names == ['kernel'] and array.ndim > 1:
    array = array.transpose(*range(2, array.ndim), 1, 0)
  return f'{layer}/{(*names, last)[0]}', array


def _is_idle(name: str) -> bool:
  """Return whether the model may lack this tensor of its own network."""
  ends = 'num_batches_tracked', 'running_mean', 'running_var'
  return name.startswith('head/') or name.endswith(ends)


def _fitted(name: str, leaf: np.ndarray, shape: tuple) -> np.ndarray:
  """Return the token or the positions without a first axis of length 1.

  Positions of a square of other patches are interpolated, as timm does it.
  """
  leaf = leaf[0] if leaf.ndim == 3 and len(leaf) == 1 else leaf
  if name == 'class_token' or leaf.ndim != 2:
    return leaf
  old, new = (round((size - 1) ** 0.5) for size in (len(leaf), shape[0]))
  is_square = old**2 == len(leaf) - 1 and new**2 == shape[0] - 1
  if not is_square or old == new or leaf.shape[1:] != shape[1:]:
    return leaf
  grid = leaf[1:].reshape(old, old, -1)
  grid = jax.image.resize(grid, (new, new, grid.shape[-1]), 'cubic')
  return np.concatenate([leaf[:1], np.reshape(grid, (new * new, -1))])
