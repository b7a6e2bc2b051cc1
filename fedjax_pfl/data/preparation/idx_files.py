"""IDX files, the format of MNIST: 00 00, a type, a rank, sizes, bytes.

A folder of the user's has the four files of MNIST's release, or of a set in
its format: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the two of
`t10k`; also with .gz, or with a dot before `idx`, as some copies call them.
"""

import gzip
import math
import pathlib
import zlib
from typing import IO

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.images import Shape

GZIP, BYTES = b'\x1f\x8b', b'\0\0\x08'  # how files of these kinds begin
RANKS = {'images': 3, 'labels': 1}


def read_idx(file: pathlib.Path | IO[bytes]) -> np.ndarray:
  """Return the array of an IDX file of bytes, gzipped or not.

  What is no such file, or cut short, raises one of NOT_IDX.
  """
  content = file.read_bytes() if isinstance(file, pathlib.Path) else file.read()
  if content.startswith(GZIP):
    content = gzip.decompress(content)
  head = 4 + 4 * content[3] if len(content) > 3 else 4
  if not content.startswith(BYTES) or len(content) < head:
    raise ValueError(f'begins with {content[:4].hex(" ")}, not with 00 00 08')
  sizes = np.frombuffer(content[4:head], '>u4').tolist()
  if (held := len(content) - head) != math.prod(sizes):
    of = 'x'.join(map(str, sizes))
    raise ValueError(f'holds {held:,} bytes, by its header {of}')
  return np.frombuffer(content, np.uint8, offset=head).reshape(sizes)


NOT_IDX = ValueError, OSError, EOFError, zlib.error


def find_files(folder: pathlib.Path, shape: Shape) -> list[pathlib.Path]:
  """Return the files of a folder, checked: x and y, for training and testing.

  Refused are files that are missing, and others than images of this shape with
  a label of these classes each.
  """
  files = []
  for split in ('train', 't10k'):
    pair = [_find(folder, split, kind) for kind in RANKS]
    x, y = map(_read, pair)
    files += pair
    if x.shape != (len(y), *shape.image_shape[:2]) or y.ndim != 1 or not y.size:
      sizes = ' and '.join('x'.join(map(str, array.shape)) for array in (x, y))
      raise _refusal(f'{pair[0]} and the labels with {sizes} bytes', shape)
    if y.max() >= shape.num_classes:
      raise _refusal(f'{pair[1]} with the label {y.max()}', shape)
  return files


def _find(folder: pathlib.Path, split: str, kind: str) -> pathlib.Path:
  names = [
    f'{split}-{kind}{mark}idx{RANKS[kind]}-ubyte{end}'
    for mark in '-.'
    for end in ('', '.gz')
  ]
  for name in names:
    if (folder / name).is_file():
      return folder / name
  raise bad_input(
    'idx_files',
    got=f'{folder}, which has no {names[0]}',
    expected='a folder with the four files of the set',
    choices=names,
    cause='the folder above that of the files, or files of other names',
  )


def _read(file: pathlib.Path) -> np.ndarray:
  try:
    return read_idx(file)
  except NOT_IDX as error:
    raise bad_input(
      'idx_files',
      got=f'{file}: {error}',
      expected='an IDX file of bytes, gzipped or not',
      cause='a copy that was cut short, or a file of another format',
    ) from error


def _refusal(got: str, shape: Shape) -> BadInput:
  height, width, _ = shape.image_shape
  return bad_input(
    'idx_files',
    got=got,
    expected=f'images of {height}x{width} bytes, and for each a label below '
    f'{shape.num_classes}',
    cause='the files of another set, or of two sets in one folder',
  )
