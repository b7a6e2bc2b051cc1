"""Prepare image sets: download, check, and write what runs read."""

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import (
  BadInput,
  bad_input,
  check_known,
  expand_home,
)
from fedjax_pfl.data import prepared
from fedjax_pfl.data.images import digest, make_dataset
from fedjax_pfl.data.preparation.download import (
  ARCHIVES,
  MEGABYTE,
  Archive,
  fetch,
  writing,
)
from fedjax_pfl.data.preparation.formats import READERS, read_mnist
from fedjax_pfl.data.preparation.idx_files import find_files
from fedjax_pfl.data.stored_arrays import data_root, write_entry

# What a command line may say instead.
SHORT_NAMES = {'emnist': 'emnist/byclass', 'svhn': 'svhn_cropped'}
Log = Callable[[str], None]


def prepare(
  names: Iterable[str],
  data_dir: str = '',
  log: Log = progress.log,
  archives: Mapping[str, Sequence[Archive]] = ARCHIVES,
  idx_files: str | os.PathLike = '',
) -> None:
  """Write the image sets of these names below data_dir, where runs find them.

  A set that is there is left as it is. Archives are kept in data_dir/downloads;
  one that lies there already is not downloaded. One set in MNIST's format may
  be made of the IDX files of a folder instead: the same images, the same data.
  """
  sets = [SHORT_NAMES.get(name, name) for name in names]
  check_known(
    'image set',
    sets,
    expected='an image set that can be downloaded',
    choices=[*ARCHIVES, *SHORT_NAMES],
    cause='a misspelt name; own images are dataset=folder or dataset=npz',
  )
  root = data_root(data_dir)
  folder = root / 'downloads'
  own = _own_files(sets, idx_files) if idx_files else []
  missing = [name for name in sets if not _is_there(name, root, log)]
  absent = [
    one
    for name in missing
    for one in ([] if own else archives[name])
    if not (folder / one.name).exists()
  ]
  if absent:  # all of it, for a machine without a network
    megabytes = sum(one.size for one in absent) / MEGABYTE
    lines = [f'  {one.url}  as {one.name}' for one in absent]
    log('\n'.join([f'To be in {folder}, {megabytes:,.0f} MB:', *lines]))
  for name in sets:
    if name in missing:
      files = own or [fetch(archive, folder) for archive in archives[name]]
      _write_arrays(name, files, prepared.folder_of(name, root), log)
    log(f'Runs read it with --config.dataset={name} --config.data_dir={root}')


def _own_files(
  sets: Sequence[str], folder: str | os.PathLike
) -> list[pathlib.Path]:
  """Return the user's files of the one set that is prepared of them."""
  likely = [name for name, read in READERS.items() if read is read_mnist]
  if len(sets) != 1 or sets[0] not in likely:
    raise bad_input(
      'idx_files',
      got=f'{folder} for {", ".join(sets) or "no set"}',
      expected='one set of images in IDX files',
      choices=likely,
      cause='several sets in one command, or a set of another format',
    )
  place = expand_home('idx_files', folder)
  return find_files(place, prepared.PREPARED[sets[0]])


def _is_there(name: str, root: pathlib.Path, log: Log) -> bool:
  """Return whether runs find the set, and it has its fingerprint."""
  place = prepared.folder_of(name, root)
  if not place.is_dir():
    return False
  try:
    dataset = prepared.read(name, root)
    found = digest(*dataset.train, *dataset.test)
    is_sound = found == dataset.fingerprint
  except BadInput:
    is_sound = False
  state = 'there already' if is_sound else 'damaged, and is written again'
  log(f'{name} in {place} is {state}.')
  return is_sound


def _write_arrays(
  name: str, files: Sequence[pathlib.Path], place: pathlib.Path, log: Log
) -> None:
  log(f'Reading {name} from {", ".join(file.name for file in files)}')
  splits = READERS[name](files)
  num_classes = prepared.PREPARED[name].num_classes
  dataset = make_dataset(name, *splits, num_classes)
  with writing(place):
    write_entry(place, dataset)
  train, test = (len(split.y) for split in splits)
  log(
    f'{name}: {train:,} training and {test:,} test images in {place}; '
    f'fingerprint {dataset.fingerprint}'
  )
