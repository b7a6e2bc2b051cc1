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
import functools
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
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

FIELD = 'data_dir'  # of a config: which every message is about
IMAGES, INPUTS = 'images', 'inputs'  # one of the two holds the examples
SPLITS = ('train', 'test')
NUMBER = 'np.unique(names, return_inverse=True)[1]'
refuse = functools.partial(bad_input, FIELD)
Fits = Callable[[np.dtype, tuple[int, ...], int], bool]


class Stored(NamedTuple):
  """What an array has to be; words for the sentence that refuses another."""

  fits: Fits  # (dtype, shape, number of examples) -> bool, from the header
  expected: str  # {} stands for the number of examples
  cause: str
  least: int | None = None  # of whole numbers, which 32 bits hold


def _is_image(dtype: np.dtype, shape: tuple[int, ...], size: int) -> bool:
  return dtype == np.uint8 and len(shape) in (3, 4) and min(shape) >= 1


def _is_input(dtype: np.dtype, shape: tuple[int, ...], size: int) -> bool:
  return dtype.kind in 'fiu' and len(shape) >= 2 and min(shape) >= 1


def _is_one_each(kinds: str) -> Fits:
  return lambda dtype, shape, size: dtype.kind in kinds and shape == (size,)


RULES = {
  IMAGES: Stored(
    _is_image,
    'images uint8 [P, H, W, ch] or [P, H, W], at least one',
    'images that were divided by 255 already, pixels that were flattened, or '
    'images of unlike sizes; an input of the model goes under the name inputs',
  ),
  INPUTS: Stored(
    _is_input,
    'inputs [P, ...] of floats or whole numbers, with one axis or more '
    'behind that of the examples',
    'rows of unlike lengths, which have to be padded to one; words, which '
    'have to be numbered; or one number for each example: [:, None]',
  ),
  'labels': Stored(
    _is_one_each('iu'),
    'labels [{}], a whole number from 0 for each image',
    'one-hot or float labels, names of classes: number them with '
    f'{NUMBER}; or -1 for "no label"',
    least=0,
  ),
  'clients': Stored(
    _is_one_each('iu'),
    'clients [{}], a whole number from 0 for each image',
    f'names of clients: number them with {NUMBER}; or the clients of one '
    'split only',
    least=0,
  ),
  'split': Stored(
    _is_one_each('U'),
    "split [{}], the word 'train' or 'test' for each image",
    "numbers: write np.where(is_test, 'test', 'train'); other words; or a "
    'column of pandas without .astype(str)',
  ),
  'num_classes': Stored(
    lambda dtype, shape, size: dtype.kind in 'iu' and shape == (),
    'num_classes as one whole number above 0',
    'the names or the counts of the classes',
    least=1,
  ),
}


class Part(NamedTuple):
  """What one file holds, but for its images, or inputs."""

  file: pathlib.Path
  shape: tuple[int, ...]  # of an example as it is used: (H, W, ch) of images
  dtype: str  # of an example as it is used: uint8, float32 or int32
  labels: np.ndarray  # [P]
  is_test: np.ndarray  # [P] bool
  clients: np.ndarray | None  # [P]
  num_classes: int  # 0: not given

  @property
  def key(self) -> str:
    """Return the name of the array of examples."""
    return IMAGES if self.dtype == IMAGE else INPUTS


def find_files(place: str) -> list[pathlib.Path]:
  """Return the file, or those of a folder by name; [] if there are none."""
  path = expand_home(FIELD, place)
  if path.suffix == '.npz' and path.is_file():
    return [path]
  return sorted(path.glob('*.npz')) if place and path.is_dir() else []


def peek_npz(place: str) -> Shape:
  """Return image shape and number of classes; images are not read."""
  parts = _read_parts(place)
  return Shape(parts[0].shape, _count_classes(parts))


def peek_dtype(place: str) -> str:
  """Return the dtype of the images, or of the inputs."""
  return _read_parts(place)[0].dtype


def load_npz(place: str) -> Dataset:
  """Return the image set, with the client of every example if it is known."""
  parts = _read_parts(place)
  x = np.concatenate([_read_examples(part) for part in parts])
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
    raise refuse(
      got=place,
      expected='a .npz file, or a folder with a .npz file for each client',
      cause='a path from another folder, or --config.data_dir was left out',
    )
  is_folder = expand_home(FIELD, place).is_dir()
  parts = [
    _read_part(file, client if is_folder else None)
    for client, file in enumerate(files)
  ]
  for part in parts:
    if _kind(part) != _kind(parts[0]):
      raise refuse(
        got=f'{part.file} with {_kind(part)}',
        expected=f'those of {files[0].name}: {_kind(parts[0])}',
        cause='files of different sets, or images of unlike sizes',
      )
  return parts


def _kind(part: Part) -> str:
  number = part.num_classes or 'not given'
  return f'{part.key} {part.shape} {part.dtype}, num_classes {number}'


def _read_part(file: pathlib.Path, client: int | None) -> Part:
  """Return what a file holds; `client` is its number in a folder, or None."""
  with _opened(file) as arrays:
    key = INPUTS if INPUTS in arrays.files else IMAGES
    _check_names(file, arrays.files, key, client)
    headers = {name: _read_header(arrays, name) for name in arrays.files}
    dtype, (size, *shape) = headers[key][0], headers[key][1] or (0,)
    for name, header in headers.items():
      if not RULES[name].fits(*header, size):
        raise _broken(file, name, _describe(*header), size)
    rest = {name: arrays[name] for name in arrays.files if name != key}
  for name, array in rest.items():
    least = RULES[name].least
    if least is None and not np.isin(array, SPLITS).all():
      raise _broken(file, name, _describe(array.dtype, array.shape), size)
    if least is not None and not least <= array.min() <= array.max() < 2**31:
      raise _broken(file, name, f'from {array.min()} to {array.max()}', size)
  labels = rest['labels'].astype(np.int64)
  num_classes = int(rest.get('num_classes', 0))
  if num_classes and labels.max() >= num_classes:
    raise refuse(
      got=f'{file} with labels up to {labels.max()}',
      expected=f'labels below num_classes, {num_classes}',
      cause='labels from 1 instead of 0, or num_classes of another set',
    )
  if key == INPUTS:
    used = 'float32' if dtype.kind == 'f' else 'int32'
  else:
    used, shape = IMAGE, [*shape, 1][:3]
  clients = rest.get('clients') if client is None else np.full(size, client)
  is_test = rest.get('split', np.full(size, 'train')) == 'test'
  if clients is not None:
    clients = clients.astype(np.int64)
  return Part(file, (*shape,), used, labels, is_test, clients, num_classes)


def _broken(file: pathlib.Path, name: str, got: str, size: int) -> BadInput:
  """Return the exception for an array that breaks its rule."""
  _, expected, cause, _ = RULES[name]
  return refuse(
    got=f'{file} with {name} {got}', expected=expected.format(size), cause=cause
  )


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
    raise refuse(
      got=f'{file}, which cannot be read: {reason}',
      expected='a file of np.savez without Python objects',
      cause='a copy that was cut short, or a file of another program',
    ) from error


def _read_header(arrays, name: str) -> tuple[np.dtype, tuple[int, ...]]:
  """Return dtype and shape of an array, which is not read."""
  with arrays.zip.open(f'{name}.npy') as stream:
    version = np.lib.format.read_magic(stream)
    read = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, _, dtype = read(stream)
  return dtype, shape


def _read_examples(part: Part) -> np.ndarray:
  """Return the images, or the inputs, in the shape and dtype of their use."""
  with _opened(part.file) as arrays:
    x = arrays[part.key].reshape(-1, *part.shape)
  with np.errstate(all='ignore'):
    used = x.astype(part.dtype, copy=False)
  wrong = ~np.isfinite(used) if part.dtype == 'float32' else used != x
  if not wrong.any():
    return used
  raise refuse(
    got=f'{part.file} with inputs from {x.min()} to {x.max()}, '
    f'{wrong.sum():,} of them NaN, infinite or too large',
    expected='finite inputs, and whole numbers that 32 bits hold',
    cause='gaps that were stored as NaN, a division by 0, or hashes for tokens',
  )


def _describe(dtype: np.dtype, shape: Sequence[int]) -> str:
  """Return 'int64[12]', or 'text[12]' of words of any length."""
  return f'{"text" if dtype.kind in "US" else dtype.name}{list(shape)}'


def _check_names(
  file: pathlib.Path, names: Sequence[str], key: str, client: int | None
) -> None:
  required = (key, 'labels')
  optional = ('split', 'num_classes', 'clients')[: 3 if client is None else 2]
  wrong = [f'no {name}' for name in required if name not in names]
  known = {*required, *optional}
  wrong += [f'an unknown {name}' for name in names if name not in known]
  if wrong:
    raise refuse(
      got=f'{file} with {wrong[0]}',
      expected=f'arrays {", ".join(required)}, and optionally '
      f'{", ".join(optional)}',
      choices=dict.fromkeys((*required, *optional, INPUTS)),
      cause='arrays of other names (np.savez(file, images=x, labels=y)), both '
      '`images` and `inputs`, or `clients` in a folder, where every file is a '
      'client',
    )


def _count_classes(parts: Sequence[Part]) -> int:
  """Return the number given; else that of classes, all with an example."""
  if parts[0].num_classes:
    return parts[0].num_classes
  there = np.unique(np.concatenate([p.labels[~p.is_test] for p in parts]))
  every = np.unique(np.concatenate([part.labels for part in parts]))
  missing = np.setdiff1d([*range(len(every)), *every], there)
  if len(missing):
    file = parts[0].file
    raise refuse(
      got=f'{file if len(parts) == 1 else file.parent} without a training '
      f'example of class {missing[0]}',
      expected='one of every class from 0, or the number as num_classes',
      cause='labels from 1 instead of 0, or all examples in the split test',
    )
  return len(every)
