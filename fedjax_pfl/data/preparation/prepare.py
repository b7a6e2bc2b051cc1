"""Prepare image sets: download, check, and write what runs read."""

import contextlib
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data import image_folder, stored_arrays, tfds_reader
from fedjax_pfl.data.datasets import PREPARED
from fedjax_pfl.data.images import digest, make_dataset
from fedjax_pfl.data.preparation.archives import (
  ARCHIVES,
  SHORT_NAMES,
  Archive,
)
from fedjax_pfl.data.preparation.download import MEGABYTE, fetch, writing
from fedjax_pfl.data.preparation.formats import READERS

TINY = 'tiny-imagenet-200'  # the folder in its archive
Log = Callable[[str], None]
Archives = Mapping[str, Sequence[Archive]]


def prepare(
  names: Iterable[str],
  data_dir: str = '',
  log: Log = progress.log,
  archives: Archives = ARCHIVES,
) -> None:
  """Write the image sets of these names below data_dir, where runs find them.

  A set that is there is left as it is. Archives are kept in data_dir/downloads;
  one that lies there already is not downloaded.
  """
  sets = [_find(name) for name in names]
  root = tfds_reader.data_root(data_dir)
  folder = root / 'downloads'
  missing = [name for name in sets if not _is_there(name, root, log)]
  _announce([one for name in missing for one in archives[name]], folder, log)
  for name in sets:
    if name in missing:
      files = [fetch(archive, folder) for archive in archives[name]]
      write = _unpack if name == 'tiny_imagenet' else _write_arrays
      write(name, files, root, log)
    log(f'Runs read it with --config.dataset={name} --config.data_dir={root}')


def _find(name: str) -> str:
  """Return the name of the image set in a config."""
  full = SHORT_NAMES.get(name, name)
  if full not in ARCHIVES:
    raise bad_input(
      'image set',
      got=name,
      expected='an image set that can be downloaded',
      choices=[*ARCHIVES, *SHORT_NAMES],
      cause='a misspelt name; own images are dataset=folder or dataset=npz',
    )
  return full


def _announce(
  archives: Sequence[Archive], folder: pathlib.Path, log: Log
) -> None:
  """Log what is to be downloaded: all of it, for a machine without a network.

  The sentence of a download that fails names the first file alone.
  """
  absent = [one for one in archives if not (folder / one.name).exists()]
  if not absent:
    return
  megabytes = sum(one.size for one in absent) / MEGABYTE
  lines = [f'  {one.url}  as {one.name}' for one in absent]
  log('\n'.join([f'To be in {folder}, {megabytes:,.0f} MB:', *lines]))


def _is_there(name: str, root: pathlib.Path, log: Log) -> bool:
  """Return whether runs find the set; log where, and in which form."""
  if name == 'tiny_imagenet':
    place, by = image_folder.find_folder(root), ''
  elif stored_arrays.prepared_folder(name, root).is_dir():
    return _is_sound(name, root, log)
  else:
    place = tfds_reader.find_prepared(name, str(root))
    by = ', prepared by TensorFlow Datasets'
  if place:
    log(f'{name} is in {place} already{by}.')
  return place is not None


def _is_sound(name: str, root: pathlib.Path, log: Log) -> bool:
  """Return whether arrays on the disk have the fingerprint beside them."""
  place = stored_arrays.prepared_folder(name, root)
  with contextlib.suppress(BadInput):
    dataset = stored_arrays.read_prepared(name, root)
    if digest(*dataset.train, *dataset.test) == dataset.fingerprint:
      log(f'{name} is in {place} already, unchanged ({dataset.fingerprint}).')
      return True
  log(f'{name} in {place} is damaged, and is written again.')
  return False


def _write_arrays(
  name: str, files: Sequence[pathlib.Path], root: pathlib.Path, log: Log
) -> None:
  log(f'Reading {name} from {", ".join(file.name for file in files)}')
  train, test = READERS[name](files)
  num_classes = PREPARED[name].num_classes
  dataset = make_dataset(name, train, test, num_classes)
  place = stored_arrays.prepared_folder(name, root)
  with writing(place):
    stored_arrays.write_entry(place, dataset)
  log(
    f'{name}: {len(train.y):,} training and {len(test.y):,} test images in '
    f'{place}; fingerprint {dataset.fingerprint}'
  )


def _unpack(
  name: str, files: Sequence[pathlib.Path], root: pathlib.Path, log: Log
) -> None:
  """Unpack the labelled images: all or none of them appear in the root."""
  with writing(root):
    folder = pathlib.Path(tempfile.mkdtemp(prefix='.half-', dir=root))
  try:
    with zipfile.ZipFile(files[0]) as archive, writing(folder):
      members = [
        member
        for member in archive.namelist()
        if member.startswith((f'{TINY}/train/', f'{TINY}/val/'))
      ]
      unit = f'{name}, file'
      with progress.progress(name, len(members), unit=unit) as bar:
        for done, member in enumerate(members, 1):
          archive.extract(member, folder)
          bar.update(done)
      (folder / TINY).replace(root / TINY)
  finally:
    shutil.rmtree(folder, ignore_errors=True)
  log(f'{name}: {len(members):,} files in {root / TINY}')
