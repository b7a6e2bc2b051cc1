"""Read and write the folders of PFLlib and HtFLlib as they are.

  train/K.npz, test/K.npz    of client K, from 0: `data`, a pickled dict of x
                             and y
  config.json                with num_clients and, mostly, num_classes

Images [n, ch, H, W] in [-1, 1] that are u / 127.5 - 1 of whole u become the
bytes u [n, H, W, ch]: the recipe of `pfllib` makes the same inputs of them.
Other images stay floats. Texts are whole numbers [n, L]; where x has pairs of
tokens and a length, the length is dropped, which is L for all texts.
Pickles are read without running what they name (plain_pickle.py).
"""

import pathlib
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data import images, plain_pickle, stored_arrays
from fedjax_pfl.data.images import SPLITS, Images, Shape, Where
from fedjax_pfl.data.stored_arrays import data_root, files_key, load_cached

CLOSE = 1e-5  # of an input in float32


def peek(where: Where) -> Shape:
  """Return the shape of examples of client 0, number of classes and clients."""
  root = data_root(where.data_dir)
  number, stated = _check_folder(root)
  if not stated:
    dataset = load(where._replace(log_fn=lambda _: None))
    x, stated = dataset.train.x, dataset.num_classes
  else:
    x, _ = _read(root / 'train' / '0.npz', stated)
  return Shape(x.shape[1:], stated, x.dtype.name, num_clients=number)


def load(where: Where) -> images.Dataset:
  """Return the examples with the client of each; read once, then cached."""
  root = data_root(where.data_dir)
  number, stated = _check_folder(root)
  where.log_fn(f'Found in {root}: {number:,} clients (of partition=natural).')
  stems = [f'{split}/{client}' for split in SPLITS for client in range(number)]
  files = [root / f'{stem}.npz' for stem in stems]

  def build() -> images.Dataset:
    where.log_fn(f'Reading {root}; later runs take a stored copy.')
    read = [_read(file, stated) for file in files]
    first = read[0][0]
    kind_of = lambda x: f'{x.dtype}{[*x.shape[1:]]}'
    for file, (x, _) in zip(files, read, strict=True):
      if kind_of(x) != kind_of(first):
        expected = f'{kind_of(first)}, as those of client 0'
        raise _refuse(file, f'with examples {kind_of(x)}', expected)
    *splits, clients = images.joined(read[:number], read[number:])
    largest = 1 + max(int(split.y.max(initial=-1)) for split in splits)
    dataset = images.make_dataset('pfllib', *splits, stated or largest)
    return dataset._replace(clients=clients)

  config = [root / 'config.json'] * (root / 'config.json').is_file()
  return load_cached('pfllib', files_key([*files, *config]), build)


def write(
  folder: pathlib.Path,
  pools: Sequence[Images],
  num_classes: int,
  division: Mapping[str, Sequence[np.ndarray]],
) -> None:
  """Write the clients of a partition to a new folder, as PFLlib reads them.

  Images become [n, ch, H, W] floats in [-1, 1]; other inputs stay as they are.
  """
  statistic = []
  for split, pool in zip(SPLITS, pools, strict=True):
    (folder / split).mkdir(parents=True)
    for client, rows in enumerate(division[split]):
      x, y = pool.x[rows], pool.y[rows].astype(np.int64)
      if x.dtype == images.IMAGE:
        x = (x.astype(np.float32) / 127.5 - 1).transpose(0, 3, 1, 2)
      with (folder / split / f'{client}.npz').open('wb') as stream:
        np.savez_compressed(stream, data={'x': np.ascontiguousarray(x), 'y': y})
  for rows in zip(*(division[split] for split in SPLITS), strict=True):
    labels = [pool.y[some] for pool, some in zip(pools, rows, strict=True)]
    y = np.concatenate(labels)
    counts = zip(*np.unique(y, return_counts=True), strict=True)
    statistic.append([[int(label), int(count)] for label, count in counts])
  numbers = {'num_clients': len(statistic), 'num_classes': num_classes}
  numbers['Size of samples for labels in clients'] = statistic
  atomic_files.write_json(folder / 'config.json', numbers)


def _check_folder(root: pathlib.Path) -> tuple[int, int]:
  """Return the number of clients, and of classes or 0 where none is stated."""
  numbers = []
  for split in SPLITS:
    stems = [file.stem for file in (root / split).glob('*.npz')]
    if not stems or not all(stem.isdecimal() for stem in stems):
      raise _refuse(root / split, f'with the files {sorted(stems)[:5]}')
    numbers.append({int(stem) for stem in stems})
  config, size = root / 'config.json', 1 + max(map(max, numbers))
  stated = {}
  if config.exists():
    try:
      if not config.is_file():
        raise ValueError('it is no file')
      stated = atomic_files.parse_object(config.read_bytes())
    except ValueError as error:
      raise _refuse(config, f'which does not read: {error}') from error
  counts = [stated.get(name, 0) for name in ('num_clients', 'num_classes')]
  if not all(isinstance(count, int) and count >= 0 for count in counts):
    raise _refuse(config, f'with num_clients and num_classes {counts}')
  size = max(size, counts[0])
  for split, clients in zip(SPLITS, numbers, strict=True):
    if holes := sorted({*range(size)} - clients):
      expected = f'a file of each of {size} clients, in train/ and in test/'
      raise _refuse(root / split, f'without {holes[0]}.npz', expected)
  return size, counts[1]


def _read(file: pathlib.Path, num_classes: int) -> Images:
  """Return inputs and labels of a client, checked."""
  try:
    if not file.is_file():  # a pipe would be waited for
      raise ValueError('it is no file')
    with zipfile.ZipFile(file) as archive, archive.open('data.npy') as stream:
      dtype, shape, _ = stored_arrays.npy_header(stream)
      if (shape, dtype.kind) != ((), 'O'):
        raise ValueError(f'data is {dtype}{[*shape]} and no dict')
      data = plain_pickle.load(stream)
    x, y = _inputs_of(data['x']), np.asarray(data['y'])
  except PermissionError:
    raise
  except Exception as error:  # zipfile, numpy and pickle raise a dozen kinds
    raise _refuse(file, f'which does not read: {error}') from error
  if y.shape != x.shape[:1] or (y.size and y.dtype.kind not in 'iu'):
    got = f'with {y.dtype}{[*y.shape]} labels of {len(x)} examples'
    raise _refuse(file, got, 'a whole number for each example')
  most = num_classes or 2**31
  if y.size and not 0 <= y.min() <= y.max() < most:
    got = f'with labels from {y.min()} to {y.max()}'
    expected = f'labels below {most}, the num_classes of config.json'
    raise _refuse(file, got, expected)
  return Images(x, y.astype(np.int32))


def _inputs_of(x: np.ndarray) -> np.ndarray:
  """Return images [n, H, W, ch] uint8, else inputs of float32 or int32."""
  x = np.asarray(x)
  if x.dtype == object:  # (tokens, length) of each text
    columns = map(list, zip(*x, strict=True))
    tokens, lengths = map(plain_pickle.plain, columns)
    x = np.array(tokens)  # of one length, or an error
    if {*lengths} - {x.shape[1]}:
      raise ValueError(f'texts of {x.shape[1]} tokens with other lengths')
  if x.dtype.kind in 'iub':
    if x.size and not -(2**31) <= x.min() <= x.max() < 2**31:
      raise ValueError('whole numbers of more than 32 bits')
    return x.astype(np.int32)
  if not np.isfinite(x).all():
    raise ValueError('inputs that are NaN or infinite')
  if x.ndim != 4:
    return x.astype(np.float32)
  x = x.transpose(0, 2, 3, 1)
  u = np.rint(x * 127.5 + 127.5)
  is_byte = (u >= 0) & (u <= 255) & (np.abs(u / 127.5 - 1 - x) < CLOSE)
  if x.shape[-1] in (1, 3) and is_byte.all():
    return u.astype(np.uint8)
  return np.ascontiguousarray(x, np.float32)


def _refuse(
  path: pathlib.Path,
  got: str,
  expected: str = 'train/0.npz, train/1.npz .., the same numbers in test/, and '
  'config.json, as PFLlib and HtFLlib write them',
) -> BadInput:
  return bad_input(
    'data_dir',
    got=f'{path}, {got}',
    expected=expected,
    cause='a folder above or below that of the data set, or a copy or a '
    'generation that was cut short',
  )
