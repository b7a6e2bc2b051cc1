"""Read folders of images, or of sounds; image_layouts.py finds the files.

image_size=s    every image is scaled to s x s, whatever its shape was; sounds
                become images of that size (sounds.py)
"""

import os
import pathlib
from collections.abc import Sequence
from concurrent import futures

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import image_layouts, images, sounds
from fedjax_pfl.data.image_layouts import Listing
from fedjax_pfl.data.images import Dataset, Shape, Where
from fedjax_pfl.data.stored_arrays import data_root, files_key, load_cached

FORMATS = 'PNG', 'JPEG', 'BMP', 'WEBP'  # for others Pillow may run a program


def peek(where: Where) -> Shape:
  """Return the shape of the first images, number of classes and of clients."""
  listing = image_layouts.find(data_root(where.data_dir))
  return Shape(
    _shape(listing, where.side),
    len(listing.classes),
    num_clients=len(listing.clients),
    has_tests=bool(listing.is_test.any()),
  )


def load(where: Where) -> Dataset:
  """Return the image set; images are decoded once, then cached."""
  root, side = data_root(where.data_dir), where.side
  listing = image_layouts.find(root)
  where.log_fn(f'Found in {listing.describe()}.')

  def build() -> Dataset:
    where.log_fn(f'Reading files from {root}; later runs take a stored copy.')
    if listing.is_sound:
      x = sounds.read_files(listing.files, side)
    else:
      x = read_files(listing.files, _shape(listing, side), side)
    splits = images.divide(x, listing.labels, listing.is_test)
    dataset = images.make_dataset('folder', *splits, len(listing.classes))
    if not listing.clients:
      return dataset
    is_test = listing.is_test
    both = listing.owners[~is_test], listing.owners[is_test]
    return dataset._replace(clients=both)

  names = [*listing.classes]
  if side or listing.clients or image_layouts.is_table(root):
    digest = images.digest(listing.labels, listing.is_test, listing.owners)
    names += [f'{side}', digest, *map(str, listing.files)]
  try:
    key = files_key(listing.files, names)
  except PermissionError:
    raise
  except OSError as error:
    got = f'with {error.filename}, a link that leads to no file'
    raise image_layouts.refuse(root, got) from error
  named = {'client_names': listing.clients, 'class_names': listing.classes}
  return load_cached('folder', key, build)._replace(**named)


def _shape(listing: Listing, side: int) -> tuple[int, ...]:
  """Return the shape of sounds, or of the first training image.

  It has three channels if the first training image of any client has: domains
  may be grey or in colour.
  """
  if listing.is_sound:
    return (side or sounds.SIDE,) * 2 + (1,)
  train = np.flatnonzero(~listing.is_test)
  firsts = train[np.unique(listing.owners[train], return_index=True)[1]]
  shapes = [_open(listing.files[row], side).shape for row in firsts]
  height, width, _ = shapes[0]
  return height, width, max(channels for *_, channels in shapes)


def image_files(folder: str | os.PathLike) -> list[pathlib.Path]:
  """Return the image files in a folder and those below it, in order."""
  files = sorted(pathlib.Path(folder).rglob('*'))
  suffixes = image_layouts.SUFFIXES
  if files := [file for file in files if file.suffix.lower() in suffixes]:
    return files
  raise bad_input(
    'images',
    got=str(folder),
    expected='a folder with image files',
    choices=sorted(suffixes),
  )


def read_files(
  files: Sequence[pathlib.Path], shape: tuple[int, ...], side: int
) -> np.ndarray:
  """Return the decoded images [P, *shape]."""
  pixels = np.empty((len(files), *shape), np.uint8)

  def read(row: int) -> None:
    file = files[row]
    x = _open(file, side)
    if shape[-1] == 3:
      x = np.broadcast_to(x, (*x.shape[:2], 3))
    elif (x == x[..., :1]).all():  # grey, but stored with three channels
      x = x[..., :1]
    if x.shape != shape:
      raise bad_input(
        'data_dir',
        got=f'an image of shape {x.shape}, {file}',
        expected=f'{shape}, the shape of the first training image',
        choices=['--config.image_size=32, which scales every image to 32 x 32'],
        cause='photographs that were not cropped or scaled to one size, or a '
        'first one that is grey',
      )
    pixels[row] = x

  with futures.ThreadPoolExecutor() as pool:
    for _ in pool.map(read, range(len(pixels))):
      pass
  return pixels


def _open(file: pathlib.Path, side: int = 0) -> np.ndarray:
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
      image = image.convert('L' if grey else 'RGB')
      x = np.asarray(images.squared(image, side) if side else image)
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
