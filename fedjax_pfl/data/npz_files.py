"""Read the user's own arrays: one .npz file, or a folder with one a client.

  images       [P, H, W, ch] or [P, H, W] uint8
  inputs       in the place of images: [P, ...] floats, or whole numbers, which
               a model gets as they are
  labels       [P] whole numbers from 0
  split        [P] 'train' or 'test'; without it every example is for training
  num_classes  a number; without it every class has a training example
  clients      [P] who holds the example, whole numbers from 0; one file only

In a folder, client k is the k-th file by name. partition='natural' divides by
these clients; the other partitions ignore them. Nothing is unpickled.
"""

import contextlib
import pathlib
import zipfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input, expand_home
from fedjax_pfl.data.images import (
  IMAGE,
  Dataset,
  Images,
  Shape,
  make_dataset,
)

IMAGES, INPUTS = 'images', 'inputs'  # one of the two holds the examples
SPLITS = ('train', 'test')
FIELD = 'data_dir'  # of a config: which every message is about


class Rule(NamedTuple):
  """What an array has to be; words for the sentence that refuses another."""

  expected: str  # {} stands for the number of examples
  cause: str


NUMBER = 'np.unique(names, return_inverse=True)[1]'
RULES = {
  IMAGES: Rule(
    'images uint8 [P, H, W, ch] or [P, H, W], at least one',
    'images that were divided by 255 already, channels before pixels that '
    'were flattened, or a list of images of unlike sizes; what is no image, '
    'or an input of the model already, goes under the name inputs',
  ),
  INPUTS: Rule(
    'inputs [P, ...] of floats or whole numbers, with one axis or more '
    'behind that of the examples',
    'rows of unlike lengths, which have to be padded to one; words, which '
    'have to be numbered; or one number for each example: [:, None]',
  ),
  'labels': Rule(
    'labels [{}], a whole number from 0 for each image',
    'one-hot or float labels, names of classes: number them with '
    f'{NUMBER}; or -1 for "no label"',
  ),
  'clients': Rule(
    'clients [{}], a whole number from 0 for each image',
    f'names of clients: number them with {NUMBER}; or the clients of one '
    'split only',
  ),
  'split': Rule(
    "split [{}], the word 'train' or 'test' for each image",
    "numbers: write np.where(is_test, 'test', 'train'); or other words",
  ),
  'num_classes': Rule(
    'num_classes as one whole number above 0',
    'the names or the counts of the classes',
  ),
}


class Part(NamedTuple):
  """What one file holds, but for its images, or inputs."""

  file: pathlib.Path
  shape: tuple[int, ...]  # of all its images, as stored
  dtype: str  # of its images, as they are used: uint8, float32 or int32
  labels: np.ndarray  # [P]
  is_test: np.ndarray  # [P] bool
  clients: np.ndarray | None  # [P]
  num_classes: int  # 0: not given


def find_files(place: str) -> list[pathlib.Path]:
  """Return the file, or those of a folder by name; [] if there are none."""
  path = expand_home(FIELD, place)
  if path.suffix == '.npz' and path.is_file():
    return [path]
  return sorted(path.glob('*.npz')) if place and path.is_dir() else []


def peek_npz(place: str) -> Shape:
  """Return image shape and number of classes; images are not read."""
  parts = _read_parts(place)
  return Shape(_image_shape(parts[0]), _count_classes(parts))


def peek_dtype(place: str) -> str:
  """Return the dtype of the images, or of the inputs."""
  return _read_parts(place)[0].dtype


def load_npz(place: str) -> Dataset:
  """Return the image set, with the client of every example if it is known."""
  parts = _read_parts(place)
  x = np.concatenate([_read_images(part) for part in parts])
  y = np.concatenate([part.labels for part in parts]).astype(np.int32)
  is_test = np.concatenate([part.is_test for part in parts])
  train, test = (Images(x[rows], y[rows]) for rows in (~is_test, is_test))
  dataset = make_dataset('npz', train, test, _count_classes(parts))
  if parts[0].clients is None:
    return dataset
  clients = np.concatenate([part.clients for part in parts])
  return dataset._replace(clients=(clients[~is_test], clients[is_test]))


def _read_parts(place: str) -> list[Part]:
  """Return all files, checked each and beside one another."""
  files = find_files(place)
  if not files:
    raise _refuse(
      place,
      'a .npz file, or a folder with a .npz file for each client',
      'a path from another folder, or --config.data_dir that was left out',
    )
  is_folder = expand_home(FIELD, place).is_dir()
  parts = [
    _read_part(file, client if is_folder else None)
    for client, file in enumerate(files)
  ]
  _check_alike(parts)
  return parts


def _check_alike(parts: Sequence[Part]) -> None:
  """Refuse files of one folder that are not of one image set."""
  first, *others = parts
  want = _kind(first)
  for part in others:
    if _kind(part) != want:
      raise _refuse(
        f'{part.file} with {_kind(part)}',
        f'those of {first.file.name}: {want}',
        'files of different sets, or images that were not scaled to one size',
      )


def _kind(part: Part) -> str:
  return (
    f'{_key(part.dtype)} {_image_shape(part)} {part.dtype}, num_classes '
    f'{part.num_classes or "not given"}'
  )


def _key(dtype: str) -> str:
  """Return the array that has examples of this dtype."""
  return IMAGES if dtype == IMAGE else INPUTS


def _read_part(file: pathlib.Path, client: int | None) -> Part:
  """Return what a file holds; `client` is its number in a folder, or None."""
  with _opened(file) as arrays:
    key = INPUTS if INPUTS in arrays.files else IMAGES
    own = () if client is not None else ('clients',)
    _check_keys(
      file, arrays.files, (key, 'labels'), ('split', 'num_classes', *own)
    )
    shape, dtype = _peek_examples(file, arrays, key)
    names = [name for name in arrays.files if name != key]
    rest = {name: _read_array(file, arrays, name) for name in names}
  size = shape[0]
  for name, array in rest.items():
    if wrong := _wrong(name, array, size):
      expected, cause = RULES[name]
      raise _refuse(f'{file} with {name} {wrong}', expected.format(size), cause)
  labels = rest['labels'].astype(np.int64)
  clients = rest.get('clients')
  if client is not None:
    clients = np.full(size, client)
  num_classes = int(rest.get('num_classes', 0))
  if num_classes and labels.max() >= num_classes:
    raise _refuse(
      f'{file} with labels up to {labels.max()}',
      f'labels below num_classes, {num_classes}',
      'labels from 1 instead of 0, or num_classes of another set',
    )
  is_test = rest.get('split', np.full(size, 'train')) == 'test'
  if clients is not None:
    clients = clients.astype(np.int64)
  return Part(file, shape, dtype, labels, is_test, clients, num_classes)


def _wrong(name: str, array: np.ndarray, size: int) -> str:
  """Return how an array breaks its rule; '' if it does not."""
  is_whole = np.issubdtype(array.dtype, np.integer)
  if name == 'num_classes':
    fits = array.shape == () and is_whole and 1 <= array < 2**31
  elif name == 'split':
    fits = array.dtype.kind == 'U' and array.shape == (size,)
    fits = fits and np.isin(array, SPLITS).all()
  else:
    fits = array.shape == (size,) and is_whole
    if fits and (array.min() < 0 or array.max() >= 2**31):
      return f'from {array.min()} to {array.max()}'
  return '' if fits else _describe(array.dtype, array.shape)


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator[np.lib.npyio.NpzFile]:
  try:
    with np.load(file, allow_pickle=False) as arrays:
      yield arrays
  except BadInput:
    raise
  except Exception as error:  # zipfile and numpy raise a dozen kinds
    is_archive = isinstance(error, OSError) or zipfile.is_zipfile(file)
    reason = error if is_archive else 'it is no archive of arrays'
    raise _refuse(
      f'{file}, which cannot be read: {reason}',
      'a file of np.savez without Python objects',
      'a list of arrays of unlike shapes, which numpy stores as objects, or a '
      'copy that was cut short',
    ) from error


def _read_array(file: pathlib.Path, arrays, name: str) -> np.ndarray:
  """Return an array; refuse one of Python objects, which numpy would unpickle.

  Of all other damage `_opened` tells.
  """
  try:
    return arrays[name]
  except ValueError as error:
    if 'Object arrays' not in str(error):
      raise
    raise _refuse(
      f'{file} with {name} of Python objects',
      f'{name} as numbers, or as text',
      'text in a column of pandas, which .astype(str) makes an array of text '
      'and np.unique(texts, return_inverse=True)[1] numbers; or a list of '
      'unlike lengths',
    ) from error


def _peek_examples(
  file: pathlib.Path, arrays, key: str
) -> tuple[tuple[int, ...], str]:
  """Return shape, and dtype of use, of the examples, from their header."""
  with arrays.zip.open(f'{key}.npy') as stream:
    version = np.lib.format.read_magic(stream)
    read = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, _, dtype = read(stream)
  if key == INPUTS:
    fits = len(shape) >= 2 and min(shape) >= 1 and dtype.kind in 'fiu'
    used = 'float32' if dtype.kind == 'f' else 'int32'
  else:
    fits = dtype == np.uint8 and len(shape) in (3, 4) and min(shape) >= 1
    used = IMAGE
  if not fits:
    raise _refuse(f'{file} with {key} {_describe(dtype, shape)}', *RULES[key])
  return shape, used


def _read_images(part: Part) -> np.ndarray:
  """Return the images, or the inputs, in the shape and dtype of their use."""
  key = _key(part.dtype)
  with _opened(part.file) as arrays:
    x = arrays[key].reshape(-1, *_image_shape(part))
  if part.dtype == 'int32' and not -(2**31) <= x.min() <= x.max() < 2**31:
    got = f'inputs from {x.min()} to {x.max()}'
  elif part.dtype == 'float32' and not np.isfinite(x).all():
    number = np.sum(~np.isfinite(x))
    got = f'inputs, {number:,} of them NaN or infinite'
  else:
    return x.astype(part.dtype, copy=False)
  raise _refuse(
    f'{part.file} with {got}',
    'finite inputs, and whole numbers that 32 bits hold',
    'gaps that were stored as NaN, a division by 0, or hashes for tokens',
  )


def _image_shape(part: Part) -> tuple[int, ...]:
  """Return (H, W, ch), where images without channels have one; or any shape."""
  if part.dtype != IMAGE:
    return part.shape[1:]
  height, width, *channels = part.shape[1:]
  return (height, width, *channels) if channels else (height, width, 1)


def _describe(dtype: np.dtype, shape: Sequence[int]) -> str:
  """Return 'int64[12]', or 'text[12]' of words of any length."""
  return f'{"text" if dtype.kind in "US" else dtype.name}{list(shape)}'


def _check_keys(
  file: pathlib.Path,
  keys: Sequence[str],
  required: Sequence[str],
  optional: Sequence[str],
) -> None:
  allowed = (*required, *optional)
  missing = [key for key in required if key not in keys]
  unknown = [key for key in keys if key not in allowed]
  if missing or unknown:
    wrong = f'no {missing[0]}' if missing else f'an unknown {unknown[0]}'
    raise bad_input(
      FIELD,
      got=f'{file} with {wrong}',
      expected=f'arrays {", ".join(required)}, and optionally '
      f'{", ".join(optional)}',
      choices=dict.fromkeys((*allowed, INPUTS)),
      cause='arrays of other names (np.savez(file, images=x, labels=y)), both '
      '`images` and `inputs`, or `clients` in a folder, where every file is a '
      'client',
    )


def _count_classes(parts: Sequence[Part]) -> int:
  """Return the number given; else that of classes, all with an example."""
  if parts[0].num_classes:
    return parts[0].num_classes
  labels = [part.labels[~part.is_test] for part in parts]
  there = np.unique(np.concatenate(labels))
  every = np.unique(np.concatenate([part.labels for part in parts]))
  missing = np.setdiff1d([*range(len(every)), *every], there)
  if len(missing):
    file = parts[0].file
    raise _refuse(
      f'{file if len(parts) == 1 else file.parent} without a training example '
      f'of class {missing[0]}',
      'one of every class from 0, or the number of classes as num_classes',
      'labels from 1 instead of 0, or all examples in the split test',
    )
  return len(every)


def _refuse(got: str, expected: str, cause: str) -> BadInput:
  return bad_input(FIELD, got=got, expected=expected, cause=cause)
