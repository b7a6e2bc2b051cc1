"""One model in one file: an .npz, which numpy alone can read.

Every leaf is an array under its path, `body/conv1/kernel`; the array `meta` is
a JSON string with what is needed to build the model again. No pickle.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from fedjax_pfl.core import atomic_files, trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Params

META = 'meta'


def save_model(
  path: str | os.PathLike, params: Params, meta: Mapping[str, Any]
) -> None:
  """Write a model to a file.

  Args:
    path: of the file, which is replaced if there is one: `*.npz`.
    params: the parameters: a nested dict of arrays.
    meta: what describes the model, such as its name: values that JSON can hold.

  Returns:
    None; the file is complete when the function returns.

  >>> import tempfile
  >>> path = tempfile.mkdtemp() + '/model.npz'
  >>> params = {'head': {'bias': np.ones(2)}}
  >>> pfl.save_model(path, params, {'model': 'convnet4', 'client': 7})
  """
  arrays, dtypes = {}, {}
  for keys, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
    array = np.asarray(leaf)
    # A field of a NamedTuple, such as the class means of a template view,
    # becomes an entry of a dict.
    name = trees.leaf_name(keys)
    assert name != META and name.count('/') == max(len(keys) - 1, 0), name
    dtypes[name] = str(array.dtype)
    arrays[name] = as_bits(array)
  text = json.dumps(atomic_files.plain({'meta': meta, 'dtypes': dtypes}))
  atomic_files.write_npz(Path(path), {META: np.array(text), **arrays})


def load_model(path: str | os.PathLike) -> tuple[Params, dict[str, Any]]:
  """Return the model of a file.

  Args:
    path: of a file that `save_model` wrote, as runs do: `model/global.npz`.

  Returns:
    (params, meta): a nested dict of numpy arrays, and a dict.

  >>> import tempfile
  >>> path = tempfile.mkdtemp() + '/model.npz'
  >>> pfl.save_model(path, {'bias': np.ones(2)}, {'model': 'convnet4'})
  >>> pfl.load_model(path)
  ({'bias': array([1., 1.])}, {'model': 'convnet4'})
  """
  path = Path(path)
  if not path.is_file():
    raise bad_input(
      'model',
      got=str(path),
      expected='a file that save_model wrote',
      choices=sorted(map(str, path.parent.glob('*.npz'))),
    )
  arrays = atomic_files.read_npz(path)
  try:
    header = atomic_files.parse_object(str(arrays.pop(META)))
    # A damaged archive may lack its last members without an error.
    params = {
      name: arrays[name].view(jnp.dtype(dtype))
      for name, dtype in header['dtypes'].items()
    }
    return unflatten_dict(params, sep='/'), dict(header['meta'])
  except (ValueError, TypeError, LookupError, AttributeError) as error:
    raise bad_input(
      'model',
      got=f'{path} with {", ".join(arrays) or "no arrays"}',
      expected=f'a file that save_model wrote, with an array {META!r}',
    ) from error


def as_bits(array: np.ndarray) -> np.ndarray:
  """Return the array in a dtype that .npy knows: bfloat16 as its bits."""
  is_known = array.dtype == np.dtype(array.dtype.str)
  return array if is_known else array.view(f'u{array.dtype.itemsize}')
