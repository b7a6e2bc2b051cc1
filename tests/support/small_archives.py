"""Archives like the official ones: a few images each, and file:// addresses."""

import gzip
import hashlib
import io
import tarfile
import zipfile

import numpy as np
from PIL import Image

from fedjax_pfl.data.preparation.download import ARCHIVES, Archive

TRAIN, TEST = 20, 10


def write_archives(folder, names):
  """Return ({name: archives}, {name: the images as in the archives}).

  Images are (x, y) train and (x, y) test in the order of the release, as an
  official reader would show them.
  """
  folder.mkdir(exist_ok=True)
  archives, images = {}, {}
  for seed, name in enumerate(names):
    rng = np.random.default_rng(seed)
    contents, images[name] = WRITERS[name](rng)
    archives[name] = tuple(
      _store(folder, official.name, content)
      for official, content in zip(ARCHIVES[name], contents, strict=True)
    )
  return archives, images


def _store(folder, name, content):
  file = folder / name
  file.write_bytes(content)
  digest = hashlib.sha256(content).hexdigest()
  return Archive(file.as_uri(), len(content), digest, name)


def _draw(rng, shape, num_classes):
  return [
    (
      rng.integers(0, 256, (size, *shape), np.uint8),
      rng.permutation(np.arange(size) % num_classes),
    )
    for size in (TRAIN, TEST)
  ]


def _cifar(rng, files, num_classes):
  """Return a .tar.gz of {file: rows of the split}; CIFAR-100 has two labels."""
  splits = _draw(rng, (32, 32, 3), num_classes)
  tar = io.BytesIO()
  with tarfile.open(fileobj=tar, mode='w:gz') as archive:
    for names, (x, y) in zip(files, splits, strict=True):
      planes = x.transpose(0, 3, 1, 2).reshape(len(y), -1)
      labels = [19 - y % 20, y] if num_classes == 100 else [y]  # coarse, fine
      rows = np.column_stack([*labels, planes]).astype(np.uint8)
      for name, part in zip(names, np.split(rows, len(names)), strict=True):
        member = tarfile.TarInfo(f'folder/{name}')
        member.size = part.nbytes
        archive.addfile(member, io.BytesIO(part.tobytes()))
  return [tar.getvalue()], splits


def _idx(array):
  sizes = np.array(array.shape, '>u4').tobytes()
  content = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
  return gzip.compress(content)


def _mnist(rng):
  splits = _draw(rng, (28, 28), 10)
  parts = [_idx(a.astype(np.uint8)) for split in splits for a in split]
  return parts, [(x[..., None], y) for x, y in splits]


def _emnist(rng):
  splits = _draw(rng, (28, 28), 62)
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w') as archive:
    for split, (x, y) in zip(('train', 'test'), splits, strict=True):
      stem = f'gzip/emnist-byclass-{split}'
      columns = np.ascontiguousarray(x.swapaxes(1, 2))
      archive.writestr(f'{stem}-images-idx3-ubyte.gz', _idx(columns))
      labels = _idx(y.astype(np.uint8))
      archive.writestr(f'{stem}-labels-idx1-ubyte.gz', labels)
  return [content.getvalue()], [(x[..., None], y) for x, y in splits]


def _svhn(rng):
  from scipy import io as scipy_io

  splits, contents = _draw(rng, (32, 32, 3), 10), []
  for x, y in splits:
    content = io.BytesIO()
    arrays = {'X': np.moveaxis(x, 0, -1), 'y': np.where(y, y, 10)[:, None]}
    scipy_io.savemat(content, arrays, do_compression=True)
    contents.append(content.getvalue())
  return contents, splits


def _tiny(rng):
  """Return the zip of 200 classes with an image each, and unlabelled tests."""
  content, root = io.BytesIO(), 'tiny-imagenet-200'
  with zipfile.ZipFile(content, 'w') as archive:

    def store(place):
      """Return the pixels of an image that is written: JPEG loses some."""
      stream = io.BytesIO()
      x = rng.integers(0, 256, (64, 64, 3), np.uint8)
      Image.fromarray(x).save(stream, 'JPEG')
      archive.writestr(f'{root}/{place}', stream.getvalue())
      return np.asarray(Image.open(stream))

    train = [store(f'train/n{k:04}/images/n{k:04}_0.JPEG') for k in range(200)]
    test = [store(f'val/images/val_{k}.JPEG') for k in range(TEST)]
    store('test/images/test_0.JPEG')
    lines = [f'val_{k}.JPEG\tn{k + 7:04}\t0\t0\t9\t9' for k in range(TEST)]
    archive.writestr(f'{root}/val/val_annotations.txt', '\n'.join(lines))
  splits = [
    (np.stack(train), np.arange(200)),
    (np.stack(test), np.arange(TEST) + 7),
  ]
  return [content.getvalue()], splits


WRITERS = {
  'cifar10': lambda rng: _cifar(
    rng, ([f'data_batch_{k}.bin' for k in range(1, 6)], ['test_batch.bin']), 10
  ),
  'cifar100': lambda rng: _cifar(rng, (['train.bin'], ['test.bin']), 100),
  'emnist/byclass': _emnist,
  'mnist': _mnist,
  'fashion_mnist': _mnist,
  'svhn_cropped': _svhn,
  'tiny_imagenet': _tiny,
}
