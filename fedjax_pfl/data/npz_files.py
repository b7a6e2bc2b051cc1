"""Read the user's own arrays: one .npz file.

  images       [P, H, W, ch] or [P, H, W] uint8
  inputs       in the place of images: [P, ...] floats, or whole numbers, which
               a model gets as they are
  labels       [P] whole numbers from 0, or names; for whole numbers `inputs`
               [P, L] they may be [P, L], one for each token, and -1 for none
  split        [P] 'train' or 'test'; without it every example is for training
  num_classes  a number; without it every class has a training example
  clients      [P] who holds the example, whole numbers from 0, or names

Names are numbered in their order, client2 before client10.
partition='natural' divides by these clients; the other partitions ignore them.
Nothing is unpickled.
"""

import contextlib
import functools
import math
import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input, expand_home
from fedjax_pfl.data import images
from fedjax_pfl.data.stored_arrays import npy_header

refuse = functools.partial(bad_input, 'data_dir')
BLOCK = 2**24  # bytes that are read at a time


class ArrayRule(NamedTuple):
  """What an array has to be, and the words for another; P is put into {P}."""

  header: str  # a pattern for 'int64[12]'
  expected: str
  cause: str
  least: int = 0  # of whole numbers
  most: int = 2**31 - 1  # which 32 bits hold


RULES = {
  'images': ArrayRule(
    r'uint8\[[1-9]\d*(, [1-9]\d*){2,3}\]',
    'images uint8 [P, H, W, ch] or [P, H, W], at least one',
    'images that were divided by 255 already, pixels that were flattened, or '
    'images of unlike sizes; an input of the model goes under the name inputs',
  ),
  'inputs': ArrayRule(
    r'(float|int|uint)\d+\[[1-9]\d*(, [1-9]\d*)+\]',
    'inputs [P, ...] of floats or whole numbers, with one axis or more '
    'behind that of the examples',
    'rows of unlike lengths, which have to be padded to one; words, which '
    'have to be numbered; or one number for each example: [:, None]',
  ),
  'labels': ArrayRule(
    r'u?int\d+\[{P}(, {L})?\]|text\[{P}\]',
    'labels [{P}], a whole number from 0 or a name for each image; of tokens '
    '[{P}, L], -1 for none',
    'one-hot or float labels, -1 for "no label", or a column of pandas without '
    '.astype(str)',
  ),
  'split': ArrayRule(
    r'text\[{P}\]',
    "split [{P}], the word 'train' or 'test' for each image",
    "numbers: write np.where(is_test, 'test', 'train'); other words; or a "
    'column of pandas without .astype(str)',
  ),
  'num_classes': ArrayRule(
    r'u?int\d+\[\]',
    'num_classes as one whole number from 1 to 1,000,000',
    'the names or the counts of the classes',
    least=1,
    most=10**6,
  ),
  'clients': ArrayRule(
    r'(u?int\d+|text)\[{P}\]',
    'clients [{P}], a whole number from 0 or a name for each image',
    'the clients of one split only, or a column of pandas without .astype(str)',
  ),
}


class Content(NamedTuple):
  """What a file holds, but for its images, or inputs."""

  file: pathlib.Path
  key: str  # images or inputs
  shape: images.Shape  # of examples as they are used: uint8, float32 or int32
  labels: np.ndarray  # [P], or [P, L]
  is_test: np.ndarray  # [P] bool
  clients: np.ndarray | None  # [P]
  names: dict[str, list[str]]  # of labels and clients, where they have names


def peek(where: images.Where) -> images.Shape:
  """Return shapes, dtype, number of classes and clients; read no images."""
  return _read(where.data_dir).shape


def load(where: images.Where) -> images.Dataset:
  """Return the image set, with the client of every example if it is known."""
  content = _read(where.data_dir)
  train, test = _read_examples(content)
  labels = content.labels.astype(np.int32)
  dataset = images.make_dataset(
    'npz',
    images.Images(train, labels[~content.is_test]),
    images.Images(test, labels[content.is_test]),
    content.shape.num_classes,
  )
  dataset = dataset._replace(
    class_names=content.names.get('labels', ()),
    client_names=content.names.get('clients', ()),
  )
  if content.clients is None:
    return dataset
  clients = content.clients.astype(np.int64)
  both = clients[~content.is_test], clients[content.is_test]
  return dataset._replace(clients=both)


def _read(place: str) -> Content:
  """Return what a file holds, checked."""
  file = expand_home('data_dir', place)
  if file.suffix != '.npz' or not file.is_file():
    raise refuse(
      got=place,
      expected='a .npz file',
      cause='a path from another folder, or --config.data_dir was left out',
    )
  with _opened(file) as arrays:
    key = 'inputs' if 'inputs' in arrays.files else 'images'
    _check_names(file, arrays.files, key)
    headers = {}
    for name in arrays.files:
      with arrays.zip.open(f'{name}.npy') as stream:
        headers[name] = npy_header(stream)[:2]
    dtype, (size, *shape) = headers[key][0], headers[key][1] or (0,)
    is_whole = key == 'inputs' and dtype.kind in 'iu' and len(shape) == 1
    tokens = str(shape[0]) if is_whole else 'none'
    found = {name: _describe(*header) for name, header in headers.items()}
    for name, words in found.items():
      rule = RULES[name].header.replace('{P}', f'{size}').replace('{L}', tokens)
      if not re.fullmatch(rule, words):
        raise _broken(file, name, words, size)
    rest = {name: arrays[name] for name in arrays.files if name != key}
  names = {}
  for name in {'labels', 'clients'} & {*rest}:
    if rest[name].dtype.kind == 'U':
      names[name] = sorted({*rest[name].tolist()}, key=images.natural_key)
      number = {own: at for at, own in enumerate(names[name])}
      rest[name] = np.array([number[own] for own in rest[name].tolist()])
  for name, array in rest.items():
    if name == 'split':
      if not np.isin(array, images.SPLITS).all():
        raise _broken(file, name, found[name], size)
      continue
    least = -1 if array.ndim == 2 else RULES[name].least  # -1: of a token
    if not least <= array.min() <= array.max() <= RULES[name].most:
      raise _broken(file, name, f'from {array.min()} to {array.max()}', size)
  used = 'float32' if dtype.kind == 'f' else 'int32'
  if key == 'images':
    used, shape = images.IMAGE, [*shape, 1][:3]
  labels = rest['labels'].astype(np.int64)
  is_test = rest.get('split', np.full(size, 'train')) == 'test'
  number = int(rest.get('num_classes', 0))
  num_classes = _count_classes(file, labels, is_test, number)
  clients = rest.get('clients')
  example = images.Shape(
    tuple(shape),
    num_classes,
    used,
    labels.shape[1:],
    num_clients=0 if clients is None else 1 + int(clients.max()),
    has_tests=bool(is_test.any()),
  )
  return Content(file, key, example, labels, is_test, clients, names)


def _broken(file: pathlib.Path, name: str, got: str, size: int) -> BadInput:
  """Return the exception for an array that breaks its rule."""
  return refuse(
    got=f'{file} with {name} {got}',
    expected=RULES[name].expected.replace('{P}', f'{size}'),
    cause=RULES[name].cause,
  )


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator[np.lib.npyio.NpzFile]:
  try:
    with atomic_files.open_npz(file) as arrays:
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


def _read_examples(content: Content) -> list[np.ndarray]:
  """Return the examples for training, and those for testing.

  In the shape and dtype of their use, and in memory only once.
  """
  shape, dtype = content.shape.image_shape, content.shape.dtype
  sides, done = [~content.is_test, content.is_test], 0
  parts = [images.aligned((side.sum(), *shape), dtype) for side in sides]
  filled, ends, num_wrong = [0, 0], [], 0
  with _opened(content.file) as arrays:
    for x in _blocks(arrays, content.key):
      with np.errstate(all='ignore'):
        used = x.astype(dtype, copy=False).reshape(-1, *shape)
      same = used == x.reshape(used.shape)
      is_right = np.isfinite(used) if dtype == 'float32' else same
      num_wrong += used.size - np.count_nonzero(is_right)
      ends += [x.min(), x.max()]
      for at, side in enumerate(sides):
        rows = used[side[done : done + len(used)]]
        parts[at][filled[at] : filled[at] + len(rows)] = rows
        filled[at] += len(rows)
      done += len(used)
  for part in parts:
    part.flags.writeable = False
  if not num_wrong:
    return parts
  raise refuse(
    got=f'{content.file} with inputs from {np.min(ends)} to {np.max(ends)}, '
    f'{num_wrong:,} of them NaN, infinite or too large',
    expected='finite inputs, and whole numbers that 32 bits hold',
    cause='gaps that were stored as NaN, a division by 0, or hashes for tokens',
  )


def _blocks(arrays: np.lib.npyio.NpzFile, name: str) -> Iterator[np.ndarray]:
  """Yield an array in blocks of rows, read one by one."""
  with arrays.zip.open(f'{name}.npy') as stream:
    dtype, (size, *shape), is_fortran = npy_header(stream)
    if is_fortran:
      yield arrays[name]
      return
    row = math.prod(shape) * dtype.itemsize
    for first in range(0, size, number := max(BLOCK // row, 1)):
      rows = min(number, size - first)
      content = np.frombuffer(stream.read(rows * row), dtype)
      yield content.reshape(rows, *shape)


def _describe(dtype: np.dtype, shape: tuple[int, ...]) -> str:
  """Return 'int64[12]', or 'text[12]' of words of any length."""
  return f'{"text" if dtype.kind == "U" else dtype.name}{list(shape)}'


def _check_names(file: pathlib.Path, names: list[str], key: str) -> None:
  """Refuse a file that lacks an array, or has an unknown one."""
  required, optional = [key, 'labels'], ['split', 'num_classes', 'clients']
  known = required + optional
  wrong = [f'no {name}' for name in required if name not in names]
  wrong += [f'an unknown {name}' for name in names if name not in known]
  if wrong:
    raise refuse(
      got=f'{file} with {wrong[0]}',
      expected=f'arrays {", ".join(required)}, and optionally '
      f'{", ".join(optional)}',
      choices=dict.fromkeys([*known, 'inputs']),
      cause='arrays of other names (np.savez(file, images=x, labels=y)), or '
      'both `images` and `inputs`',
    )


def _count_classes(
  file: pathlib.Path, labels: np.ndarray, is_test: np.ndarray, number: int
) -> int:
  """Return the number, if it is given; else that of classes with examples."""
  if number and labels.max() >= number:
    raise refuse(
      got=f'{file} with labels up to {labels.max()}',
      expected=f'labels below num_classes, {number}',
      cause='labels from 1 instead of 0, or num_classes of another set',
    )
  if number:
    return number
  every = np.unique(labels[labels >= 0])  # -1: a token without one
  missing = np.setdiff1d([*range(len(every)), *every], labels[~is_test])
  if len(missing):
    raise refuse(
      got=f'{file} without a training example of class {missing[0]}',
      expected='one of every class from 0, or the number as num_classes',
      cause='labels from 1 instead of 0, or all examples in the split test',
    )
  return len(every)
