"""Sets that experiments/prepare.py or TensorFlow Datasets prepared.

  <data_dir>/<name>/arrays-v1/   prepare.py: the download as arrays
  <data_dir>/<name>/3.0.2/       tfds: decoded once, then a stored copy is read

Of a folder of tfds, array_record reads the records alone, without TensorFlow:
`tfds.builder_from_directory` would import what its JSON files name.
"""

import contextlib
import io
import pathlib
import shlex
from concurrent import futures

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import (
  BadInput,
  bad_input,
  check_installed,
  may_read,
)
from fedjax_pfl.data import stored_arrays
from fedjax_pfl.data.images import (
  SPLITS,
  Dataset,
  Images,
  Shape,
  Where,
  make_dataset,
)

TRANSPOSED = {'emnist/byclass'}  # EMNIST's files of tfds hold columns as rows
RECORDS = 'array_record'  # the format of tfds
FORMATS = 'PNG', 'JPEG'  # of its images; Pillow runs a program for others
CHUNK = 500  # examples that a thread decodes

PREPARED = {
  'cifar10': Shape((32, 32, 3), 10),
  'cifar100': Shape((32, 32, 3), 100),  # the fine labels
  'emnist/byclass': Shape((28, 28, 1), 62),
  'mnist': Shape((28, 28, 1), 10),
  'fashion_mnist': Shape((28, 28, 1), 10),
  'svhn_cropped': Shape((32, 32, 3), 10),  # without the split `extra`
  'tiny_imagenet': Shape((64, 64, 3), 200),
  # These say who holds an example. Those of texts are characters, each of which
  # has a label, or -1 for none.
  'shakespeare': Shape((80,), 100, 'int32', (80,)),
  'sent140': Shape((140,), 2, 'int32', (140,)),
  'femnist': Shape((28, 28, 1), 62),
}

# (training, test) examples, as tensorflow.org/datasets/catalog lists them; Tiny
# ImageNet is tested on its validation images.
NUM_EXAMPLES = {
  'cifar10': (50_000, 10_000),
  'cifar100': (50_000, 10_000),
  'emnist/byclass': (697_932, 116_323),
  'mnist': (60_000, 10_000),
  'fashion_mnist': (60_000, 10_000),
  'svhn_cropped': (73_257, 26_032),
  'tiny_imagenet': (100_000, 10_000),
}


def peek(where: Where) -> Shape:
  """Return what is known of the set, whether it is there or not."""
  return PREPARED[where.name]


def folder_of(name: str, root: pathlib.Path) -> pathlib.Path:
  """Return where the arrays of a set are, or would be."""
  return root / name / f'arrays-{stored_arrays.FORMAT}'


def is_available(where: Where) -> bool:
  """Return whether the set was prepared."""
  name, root = where.name, stored_arrays.data_root(where.data_dir)
  is_stored = folder_of(name, root).is_dir()
  return is_stored or find_prepared(name, root) is not None


def load(where: Where) -> Dataset:
  """Return the image set; refuse one that is absent, damaged or another."""
  name, root = where.name, stored_arrays.data_root(where.data_dir)
  if not is_available(where):
    ready = [n for n in PREPARED if is_available(where._replace(name=n))]
    raise bad_input(
      'dataset',
      got=f'{name}, which {root / name} does not hold',
      expected=f'the arrays of fedjax-pfl prepare in {root / name}',
      choices=['digits', 'synthetic', *ready],
      cause='data that are elsewhere ($TFDS_DATA_DIR, or --config.data_dir='
      '...) or that were never prepared. Where there is a network, run: '
      f'fedjax-pfl prepare {name} --data_dir={shlex.quote(str(root))}',
    )
  is_stored = folder_of(name, root).is_dir()
  dataset = read(name, root) if is_stored else _read_tfds(where, root)
  (x, y), number = dataset.train, dataset.num_classes
  shape = Shape(x.shape[1:], number, x.dtype.name, y.shape[1:])
  if shape != PREPARED[name]:
    raise bad_input(
      'data_dir',
      got=f'{name} with images {shape}',
      expected=f'images {PREPARED[name]}',
      cause='another data set, or another version of it, under this name',
    )
  return dataset


@may_read('data_dir')
def read(name: str, root: pathlib.Path) -> Dataset:
  """Return the arrays; raise BadInput if they are damaged or locked."""
  folder = folder_of(name, root)
  try:
    return stored_arrays.read_entry(folder)
  except PermissionError:  # of which `may_read` makes a sentence
    raise
  except Exception as error:  # numpy, json and the disk raise a dozen kinds
    raise _damaged(name, folder, error) from error


def _damaged(name: str, folder: pathlib.Path, error: Exception) -> BadInput:
  return bad_input(
    'dataset',
    got=f'{name}, and while reading {folder}: {error}',
    expected='complete files, as prepare.py or tfds wrote them',
    cause='an interrupted copy or preparation: delete the folder and prepare '
    'the set again',
  )


# ---- TensorFlow Datasets -----------------------------------------------------


def _read_tfds(where: Where, root: pathlib.Path) -> Dataset:
  """Return a set of TensorFlow Datasets, decoded once."""
  name, folder = where.name, find_prepared(where.name, root)

  def build() -> Dataset:
    where.log_fn(
      f'Reading {name} from {folder}; later runs take a stored copy.'
    )
    splits = read_splits(name, folder)
    return make_dataset(name, *splits, PREPARED[name].num_classes)

  entry, key = name.replace('/', '_'), stored_arrays.files_key(folder.iterdir())
  return stored_arrays.load_cached(entry, key, build)


def find_prepared(name: str, root: pathlib.Path) -> pathlib.Path | None:
  """Return the folder of the newest prepared version; None without one."""
  versions = {}
  for info in (root / name).glob('*/dataset_info.json'):
    with contextlib.suppress(OSError, ValueError):  # of another program
      version = tuple(map(int, info.parent.name.split('.')))
      content = info.read_bytes() if info.is_file() else b''
      if atomic_files.parse_object(content).get('fileFormat') == RECORDS:
        versions[version] = info.parent
  return versions[max(versions)] if versions else None


def read_splits(name: str, folder: pathlib.Path) -> tuple[Images, Images]:
  """Return (train, test), decoded: about 0.2 ms an image.

  Examples with an `id` (train_00017 in CIFAR) are sorted by it, which is the
  order of the original release. EMNIST is transposed back.
  """
  for package in ('array_record', 'tensorflow_datasets'):
    check_installed('dataset', package)
  from array_record.python import array_record_data_source

  try:
    return tuple(
      _read_split(
        array_record_data_source.ArrayRecordDataSource(
          _shards(name, folder, split)
        ),
        name,
      )
      for split in SPLITS
    )
  except Exception as error:  # array_record and Pillow share no base class
    raise _damaged(name, folder, error) from error


def _shards(name: str, folder: pathlib.Path, split: str) -> list[pathlib.Path]:
  """Return the files of a split, all of them, in their order."""
  stem = f'{name.split("/")[0]}-{split}.{RECORDS}'
  files = sorted(f for f in folder.glob(f'{stem}-*') if f.is_file())
  number = len(files)
  wanted = [f'{stem}-{at:05}-of-{number:05}' for at in range(number)]
  if not files or [file.name for file in files] != wanted:
    raise FileNotFoundError(f'the files {stem}-* are not one whole copy')
  return files


def _read_split(records, name: str) -> Images:
  def read(start: int) -> list[tuple[bytes, np.ndarray, int]]:
    rows = range(start, min(start + CHUNK, len(records)))
    return [_decode(record) for record in records.__getitems__(list(rows))]

  # Decoding a PNG frees the interpreter lock: two threads save a third.
  with futures.ThreadPoolExecutor() as pool:
    chunks = pool.map(read, range(0, len(records), CHUNK))
    examples = [example for chunk in chunks for example in chunk]
  examples.sort(key=lambda example: example[0])  # stable: no id, no change
  x = np.stack([x for _, x, _ in examples])
  if name in TRANSPOSED:
    x = np.ascontiguousarray(x.swapaxes(1, 2))
  return Images(x, np.array([y for _, _, y in examples], np.int32))


def _decode(record: bytes) -> tuple[bytes, np.ndarray, int]:
  """Return (id, image, label) of an example, as tfds serialises it."""
  from PIL import Image
  from tensorflow_datasets.proto import tf_example_pb2

  feature = tf_example_pb2.Example.FromString(record).features.feature
  (encoded,) = feature['image'].bytes_list.value
  (label,) = feature['label'].int64_list.value
  x = np.asarray(Image.open(io.BytesIO(encoded), formats=FORMATS))
  x = x if x.ndim == 3 else x[:, :, None]
  return b''.join(feature['id'].bytes_list.value), x, label
