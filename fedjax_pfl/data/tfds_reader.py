"""Read image sets that TensorFlow Datasets has prepared, without TensorFlow.

`tfds.data_source` reads array_record files in pure Python. Preparing them
(tfds 4.9: download, decode, re-encode) needs TensorFlow, which this package
never imports. experiments/prepare.py makes the same arrays without it.
"""

import io
import json
import os
import pathlib
import shlex
from collections.abc import Iterable
from concurrent import futures

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input, expand_home
from fedjax_pfl.data.images import Images

TRANSPOSED = {'emnist/byclass'}  # EMNIST's files hold columns as rows
FORMAT = 'array_record'


def data_root(data_dir: str = '') -> pathlib.Path:
  """Return the argument, or else tfds's default: where data sets are."""
  default = os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  return expand_home('data_dir', data_dir or default)


def find_prepared(name: str, data_dir: str = '') -> pathlib.Path | None:
  """Return the folder of the newest prepared version, or None.

  Reads small text files only; tfds is not imported.
  """
  found = [v for v in _versions(name, data_dir) if _format(v) == FORMAT]
  return max(found, key=_version_number, default=None)


def read_splits(name: str, folder: pathlib.Path) -> tuple[Images, Images]:
  """Return (train, test), decoded: about 0.2 ms an image.

  Examples with an `id` (train_00017 in CIFAR) are sorted by it: that is the
  order of the original release, whichever way tfds shuffled them. EMNIST is
  transposed back.
  """
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder_from_directory(folder)
    decoders = {'image': tfds.decode.SkipDecoding()}
    train, test = (
      _read_split(builder.as_data_source(split, decoders=decoders))
      for split in ('train', 'test')
    )
  except Exception as error:  # tfds and array_record share no base class
    raise bad_input(
      'dataset',
      got=f'{name}, and while reading {folder}: {error}',
      expected='complete array_record files with the features image and label',
      cause='an interrupted copy or preparation: delete the folder and '
      'prepare it again',
    ) from error
  if name in TRANSPOSED:
    train, test = (
      split._replace(x=np.ascontiguousarray(split.x.swapaxes(1, 2)))
      for split in (train, test)
    )
  return train, test


def _read_split(records) -> Images:
  def read(start: int) -> list[tuple[bytes, np.ndarray, int]]:
    rows = range(start, min(start + 500, len(records)))
    return [_decode(r) for r in records.__getitems__(list(rows))]

  # Decoding a PNG frees the interpreter lock: two threads save a third.
  with futures.ThreadPoolExecutor() as pool:
    chunks = pool.map(read, range(0, len(records), 500))
    examples = [example for chunk in chunks for example in chunk]
  examples.sort(key=lambda example: example[0])  # stable: no id, no change
  return Images(
    np.stack([x for _, x, _ in examples]),
    np.array([y for _, _, y in examples], np.int32),
  )


def _decode(record: dict) -> tuple[bytes, np.ndarray, int]:
  from PIL import Image

  x = np.asarray(Image.open(io.BytesIO(record['image'])))
  x = x if x.ndim == 3 else x[:, :, None]
  return record.get('id', b''), x, int(record['label'])


def not_prepared(name: str, data_dir: str, choices: Iterable[str]) -> BadInput:
  """Return the exception with the folder and the command to prepare it."""
  root = data_root(data_dir)
  others = {_format(v) for v in _versions(name, data_dir)} - {FORMAT, ''}
  got = f'{name}, which {root / name} does not hold'
  if others:
    got = f'{name}, prepared as {" and ".join(sorted(others))} in {root / name}'
  return bad_input(
    'dataset',
    got=got,
    expected=f'what experiments/prepare.py wrote, or files that tfds prepared '
    f'in {FORMAT} format, in {root / name}/<version>',
    choices=choices,
    cause='data that are elsewhere ($TFDS_DATA_DIR, or --config.data_dir=...) '
    'or that were never prepared. Where there is a network, run: '
    f'{prepare_command(name, data_dir)}',
  )


def prepare_command(name: str, data_dir: str) -> str:
  """Return the command that downloads and prepares an image set."""
  place = shlex.quote(str(data_root(data_dir)))
  return f'python experiments/prepare.py {name} --data_dir={place}'


def _versions(name: str, data_dir: str) -> list[pathlib.Path]:
  return [
    info.parent
    for info in (data_root(data_dir) / name).glob('*/dataset_info.json')
    if _version_number(info.parent)
  ]


def _version_number(folder: pathlib.Path) -> tuple[int, ...]:
  parts = folder.name.split('.')
  return tuple(map(int, parts)) if all(p.isdecimal() for p in parts) else ()


def _format(version: pathlib.Path) -> str:
  try:
    info = json.loads((version / 'dataset_info.json').read_text())
    return str(info.get('fileFormat', 'tfrecord'))  # tfds's oldest default
  except (OSError, ValueError):
    return ''
