"""A checkpoint of safetensors as the leaves of a model, by their paths.

  block0.qkv.weight   is   block0/qkv/kernel
  norm.weight         is   norm/scale, a layer without a kernel
  embed.weight        is   embed/embedding

Dots are slashes. A `weight` is PyTorch's: as a kernel, [out, in] becomes
[in, out], and [out, in, h, w] becomes [h, w, in, out]. A name with /kernel is
taken as it is.
"""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from fedjax_pfl.core.errors import bad_input

SUFFIX = '.safetensors'
# Of what PyTorch calls `weight`: the first that the layer has.
WEIGHTS = 'kernel', 'scale', 'embedding'


def load_leaves(
  path: str | os.PathLike, shapes: Mapping[str, tuple]
) -> dict[str, np.ndarray]:
  """Return {path of a leaf: array}; a name that is no leaf stays as it is.

  shapes: of the leaves of the model.
  """
  try:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file
  except ImportError as error:
    raise bad_input(
      'init_from',
      got=f'{path}, and no package safetensors here',
      expected='that package: pip install safetensors',
      cause='it is optional, and this environment is without it',
    ) from error
  if not pathlib.Path(path).is_file():
    raise bad_input(
      'init_from',
      got=str(path),
      expected=f'a file {SUFFIX}',
      choices=sorted(map(str, pathlib.Path(path).parent.glob(f'*{SUFFIX}'))),
      cause='a mistyped path, or another directory',
    )
  try:
    tensors = load_file(path)
  except (SafetensorError, ValueError, KeyError) as error:
    raise bad_input(
      'init_from',
      got=f'{path}: {error}',
      expected='a file that safetensors wrote',
      cause='another kind of file, or half a download',
    ) from error
  return dict(_leaf(name, array, shapes) for name, array in tensors.items())


def _leaf(name: str, array: np.ndarray, shapes) -> tuple[str, np.ndarray]:
  layer, _, last = name.replace('.', '/').rpartition('/')
  if last != 'weight':
    return name.replace('.', '/'), array
  found = [word for word in WEIGHTS if f'{layer}/{word}' in shapes]
  if found == ['kernel']:
    array = array.transpose(*range(2, array.ndim), 1, 0)
  return f'{layer}/{(*found, last)[0]}', array
