"""Read image sets from folders of image files, one folder for each class.

  train/<class>/*.png  and  test/<class>/*.png

Without a folder test/ there are no examples for testing.
Classes are numbered in the order of their sorted names, images are in the
order of their sorted file names. A folder is a class if it holds an image for
training and its name begins with neither . nor __, as .ipynb_checkpoints and
__MACOSX do.
"""

import pathlib
from concurrent import futures

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.images import Dataset, Images, Shape, Where, make_dataset
from fedjax_pfl.data.stored_arrays import data_root, files_key, load_cached

SUFFIXES = {'.png', '.jpg', '.jpeg', '.bmp', '.webp'}
FORMATS = 'PNG', 'JPEG', 'BMP', 'WEBP'  # for others Pillow may run a program
HIDDEN = ('.', '__')  # folders that programs leave behind
Named = list[tuple[pathlib.Path, str]]  # files and their classes


def is_available(where: Where) -> bool:
  """Return whether there is a folder for training."""
  return (data_root(where.data_dir) / 'train').is_dir()


def peek(where: Where) -> Shape:
  """Return the shape of the first image and the number of classes."""
  train, _, classes = _list_files(where)
  return Shape(_open(train[0][0]).shape, len(classes))


def load(where: Where) -> Dataset:
  """Return the image set; images are decoded once, then cached."""
  train, test, classes = _list_files(where)
  root = data_root(where.data_dir)

  def build() -> Dataset:
    where.log_fn(f'Reading images from {root}; later runs take a stored copy.')
    shape = _open(train[0][0]).shape
    splits = (_read(named, classes, shape) for named in (train, test))
    return make_dataset('folder', *splits, len(classes))

  try:
    key = files_key([file for file, _ in train + test], classes)
  except PermissionError:
    raise
  except OSError as error:
    got = f'with {error.filename}, a link that leads to no file'
    raise _refuse(root, got) from error
  return load_cached('folder', key, build)


def _refuse(root: pathlib.Path, got: str) -> BadInput:
  """Return the exception that explains the layout."""
  return bad_input(
    'data_dir',
    got=f'{root}, {got}',
    expected='image files in train/<class>/ and test/<class>/',
    choices=sorted(SUFFIXES),
    cause='a path one level too high or too low (--config.data_dir=...), or '
    'an archive that was unpacked in part',
  )


def _list_files(where: Where) -> tuple[Named, Named, list[str]]:
  """Return the files of both splits and the classes; nothing is decoded."""
  root = data_root(where.data_dir)
  if not is_available(where):
    raise _refuse(root, 'without train/')
  train, test = (_by_class(root / split) for split in ('train', 'test'))
  if not train or (not test and (root / 'test').exists()):
    without = 'test' if train else 'train'
    raise _refuse(root, f'no labelled images for {without}')
  classes = sorted({name for _, name in train})
  if unknown := sorted({name for _, name in test} - {*classes}):
    raise _refuse(
      root, f'where test images have classes that train lacks: {unknown[:5]}'
    )
  return train, test, classes


def _by_class(folder: pathlib.Path) -> Named:
  named = []
  for child in sorted(folder.iterdir()) if folder.is_dir() else ():
    if not child.is_dir() or child.name.startswith(HIDDEN):
      continue
    named += [
      (file, child.name)
      for file in sorted(child.iterdir())
      if file.suffix.lower() in SUFFIXES and not file.name.startswith(HIDDEN)
    ]
  return named


def _read(named: Named, classes: list[str], shape: tuple[int, ...]) -> Images:
  """Return the decoded images, all with the channels of the first one."""

  def read(file: pathlib.Path) -> np.ndarray:
    x = _open(file)
    if shape[-1] == 3:
      x = np.broadcast_to(x, (*x.shape[:2], 3))
    elif (x == x[..., :1]).all():  # grey, but stored with three channels
      x = x[..., :1]
    if x.shape != shape:
      raise bad_input(
        'data_dir',
        got=f'an image of shape {x.shape}, {file}',
        expected=f'{shape}, the shape of the first training image',
        cause='photographs that were not cropped or scaled to one size, or a '
        'first one that is grey',
      )
    return x

  with futures.ThreadPoolExecutor() as pool:
    x = list(pool.map(read, [file for file, _ in named]))
  x = np.array(x, np.uint8).reshape(len(named), *shape)  # of none, too
  return Images(x, np.array([classes.index(one) for _, one in named], np.int32))


def _open(file: pathlib.Path) -> np.ndarray:
  """Return [H, W, 1 or 3]; refuse damage, and depths that Pillow would clip."""
  from PIL import Image

  try:
    if not file.is_file():  # a pipe would be waited for
      raise ValueError('it is no file, or a link that leads to none')
    with Image.open(file, formats=FORMATS) as image:
      # 16 and 32 bits: cut off at 255, or of colours the upper half.
      is_deep = any(f'{args}'.endswith(';16B') for *_, args in image.tile)
      if image.mode.startswith(('I', 'F')) or is_deep:
        raise ValueError(f'its mode is {image.mode}, of 16 bits or more')
      grey = image.mode in ('1', 'L')
      x = np.asarray(image.convert('L' if grey else 'RGB'))
  except PermissionError:
    raise
  except Exception as error:  # Pillow raises half a dozen kinds
    raise bad_input(
      'data_dir',
      got=f'{file}, which does not decode: {error}',
      expected='complete image files of 8 bits a channel',
      choices=['dataset=npz, with the numbers of other files as `inputs`'],
      cause='a download or a copy that was cut short; or images of 16 bits a '
      'channel, as of medicine or depth',
    ) from error
  return x if x.ndim == 3 else x[:, :, None]
