"""Read image sets from folders of image files, one folder for each class.

  train/<class>/*.png          and  test/<class>/*.png (or val/<class>/)
  train/<class>/images/*.JPEG  and  val/images with val/val_annotations.txt

The second layout is Tiny-ImageNet's; its own test/ has no labels and is left
out. Classes are numbered in the order of their sorted names, images are in
the order of their sorted file names. A folder is a class if it holds an image
for training and its name begins with neither . nor __, as .ipynb_checkpoints
and __MACOSX do.
"""

import os
import pathlib
from collections.abc import Callable
from concurrent import futures
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.images import Dataset, Images, Shape, make_dataset
from fedjax_pfl.data.stored_arrays import files_key, load_cached

SUFFIXES = {'.png', '.jpg', '.jpeg', '.bmp', '.webp'}
HIDDEN = ('.', '__')  # folders that programs leave behind
Named = list[tuple[pathlib.Path, str]]  # files and their classes
Labelled = list[tuple[pathlib.Path, int]]


class Listing(NamedTuple):
  """The files of a folder and their labels; nothing is decoded."""

  train: Labelled
  test: Labelled
  classes: tuple[str, ...]


def find_folder(root: pathlib.Path) -> pathlib.Path | None:
  """Return the folder with train/: the root or a usual name inside it."""
  names = ('', 'tiny-imagenet-200', 'tiny_imagenet')
  return next((root / n for n in names if (root / n / 'train').is_dir()), None)


def list_folder(root: pathlib.Path) -> Listing:
  """Return the files of both splits; raise BadInput if one is missing."""
  train = _by_class(root / 'train')
  if (root / 'val' / 'val_annotations.txt').is_file():
    place, test = root / 'val', _annotated(root / 'val')
  else:
    place = root / ('test' if (root / 'test').is_dir() else 'val')
    test = _by_class(place)
  for split, files in (('train', train), ('test', test)):
    if not files:
      raise not_a_folder(root, f'no labelled images for {split}')
  classes = sorted({name for _, name in train})
  unknown = sorted({name for _, name in test} - {*classes})
  if unknown:
    raise not_a_folder(
      root, f'where {place.name} has classes that train lacks: {unknown[:5]}'
    )
  label = {name: k for k, name in enumerate(classes)}
  train, test = (
    [(file, label[name]) for file, name in named] for named in (train, test)
  )
  return Listing(train, test, tuple(classes))


def peek_folder(listing: Listing) -> Shape:
  """Return the shape of the first image and the number of classes."""
  return Shape(_open(listing.train[0][0]).shape, len(listing.classes))


def load_folder(
  name: str,
  root: pathlib.Path,
  cache_dir: str,
  log_fn: Callable[[str], None],
) -> Dataset:
  """Return the image set; images are decoded once, then cached."""
  listing = list_folder(root)
  shape, num_classes = peek_folder(listing)

  def build() -> Dataset:
    log_fn(f'Reading images from {root}; later runs take a stored copy.')
    train, test = (_read(one, shape) for one in (listing.train, listing.test))
    return make_dataset(name, train, test, num_classes)

  files = [file for file, _ in listing.train + listing.test]
  files += root.glob('val/val_annotations.txt')
  try:
    key = files_key(files, listing.classes)
  except FileNotFoundError as error:
    got = f'with {error.filename}, a link to a file that is not there'
    raise not_a_folder(root, got) from error
  return load_cached(name, key, build, cache_dir)


def not_a_folder(root: pathlib.Path, got: str, command: str = '') -> BadInput:
  """Return the exception that explains the two layouts.

  `command` downloads the set, where one does.
  """
  download = f', or a set that was never prepared: {command}' if command else ''
  return bad_input(
    'data_dir',
    got=f'{root}, {got}',
    expected='image files in train/<class>/ and test/<class>/, or '
    "Tiny-ImageNet's layout with val/val_annotations.txt",
    choices=sorted(SUFFIXES),
    cause='a path one level too high or too low (--config.data_dir=...), or '
    f'an archive that was unpacked in part{download}',
  )


def _children(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(folder.iterdir()) if folder.is_dir() else []


def _by_class(folder: pathlib.Path) -> Named:
  pairs = []
  for child in _children(folder):
    if not child.is_dir() or child.name.startswith(HIDDEN):
      continue
    inner = child / 'images'
    files = _children(inner if inner.is_dir() else child)
    pairs += [(f, child.name) for f in files if f.suffix.lower() in SUFFIXES]
  return pairs


def _annotated(folder: pathlib.Path) -> Named:
  """Return the images that the annotations name; refuse an incomplete copy."""
  root, notes = folder.parent, 'val/val_annotations.txt'
  try:
    lines = (root / notes).read_text(encoding='utf-8').splitlines()
  except UnicodeDecodeError as error:
    raise not_a_folder(root, f'where {notes} is no text ({error})') from error
  words = sorted(line.split()[:2] for line in lines if line.strip())
  images = folder / 'images'
  # One listing, not a question for each of 10,000 files.
  there = {*os.listdir(images)} if images.is_dir() else set()
  for name, *label in words:
    if not label:
      raise not_a_folder(root, f'where {notes} has no class for {name}')
    if name not in there:
      raise not_a_folder(
        root, f'without val/images/{name}, which val_annotations.txt names'
      )
  return [(images / name, label) for name, label in words]


def _read(files: Labelled, shape: tuple[int, int, int]) -> Images:
  def read(pair: tuple[pathlib.Path, int]) -> np.ndarray:
    x = _open(pair[0], channels=shape[-1])
    if x.shape != shape:
      raise bad_input(
        'data_dir',
        got=f'an image of shape {x.shape}, {pair[0]}',
        expected=f'{shape}, the shape of the first training image',
        cause='photographs that were not cropped or scaled to one size',
      )
    return x

  with futures.ThreadPoolExecutor() as pool:
    x = np.stack(list(pool.map(read, files)))
  return Images(x, np.array([label for _, label in files], np.int32))


def _open(file: pathlib.Path, channels: int | None = None) -> np.ndarray:
  """Return [H, W, ch]; grey images are repeated for 3 channels."""
  from PIL import Image

  try:
    with Image.open(file) as image:
      _check_depth(file, image.mode)
      grey = image.mode in ('1', 'L') if channels is None else channels == 1
      x = np.asarray(image.convert('L' if grey else 'RGB'))
  except BadInput:
    raise
  except Exception as error:  # Pillow raises half a dozen kinds
    raise bad_input(
      'data_dir',
      got=f'{file}, which does not decode: {error}',
      expected='complete image files',
      cause='a download or a copy that was cut short',
    ) from error
  return x if x.ndim == 3 else x[:, :, None]


def _check_depth(file: pathlib.Path, mode: str) -> None:
  """Refuse 16 and 32 bits, which Pillow would clip to 255 without a word."""
  if mode.startswith(('I', 'F')):
    raise bad_input(
      'data_dir',
      got=f'{file}, an image of mode {mode}',
      expected='8 bits a channel',
      choices=['dataset=npz, with the numbers of the file as `inputs`'],
      cause='grey images of 16 bits, as of medicine or depth: scale them to '
      '0 .. 255 and store them again',
    )
