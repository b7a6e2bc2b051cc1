"""Prepare image sets: download, check, and write what runs read."""

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput, bad_input, expand_home, may_read
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.data import prepared
from fedjax_pfl.data.clients_folder import by_client, write_clients
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.images import digest, make_dataset
from fedjax_pfl.data.preparation import download
from fedjax_pfl.data.preparation.formats import READERS, find_files, read_mnist
from fedjax_pfl.data.preparation.leaf import READERS as READERS_OF_LEAF
from fedjax_pfl.data.preparation.leaf import read_leaf
from fedjax_pfl.data.preparation.texts import read_play
from fedjax_pfl.data.stored_arrays import data_root, write_entry

# What a command line may say instead.
SHORT_NAMES = {'emnist': 'emnist/byclass', 'svhn': 'svhn_cropped'}
Log = Callable[[str], None]
# What a set may be made of: which sets, and what is expected of them.
GIVEN = {
  'idx_files': (
    [name for name, read in READERS.items() if read is read_mnist],
    'one set of images in IDX files',
  ),
  'leaf': (
    [*READERS_OF_LEAF],
    "one set, and the folder with its files that LEAF's scripts wrote",
  ),
  'text': (['shakespeare'], 'one set, and the file of a play'),
}


@may_read('data_dir')
def prepare(
  names: Iterable[str],
  data_dir: str = '',
  log: Log = progress.log,
  archives: Mapping[str, Sequence[download.Archive]] = download.ARCHIVES,
  idx_files: str | os.PathLike = '',
  leaf: str | os.PathLike = '',
  text: str | os.PathLike = '',
) -> None:
  """Write the image sets of these names below data_dir, where runs find them.

  A set that is there is left as it is. Archives are kept in data_dir/downloads;
  one that lies there already is not downloaded. One set in MNIST's format may
  be made of the IDX files of a folder instead, one of LEAF's JSON files in a
  folder, and `shakespeare` of the file of another play.
  """
  sets = [SHORT_NAMES.get(name, name) for name in names]
  known = one_of(
    dict.fromkeys([*download.ARCHIVES, *SHORT_NAMES, *READERS_OF_LEAF]),
    'an image set that can be downloaded',
    'a misspelt name; own images are dataset=folder or dataset=npz',
  )
  for name in sets:
    known.check('image set', name)
  root = data_root(data_dir)
  folder = root / 'downloads'
  sources = {'idx_files': idx_files, 'leaf': leaf, 'text': text}
  sources = {kind: path for kind, path in sources.items() if path}
  of_leaf = [name for name in sets if name not in download.ARCHIVES]
  given, read = [], READERS
  if sources or of_leaf:
    given, read_given = _given_files(sets, sources or {'leaf': ''})
    read = dict.fromkeys(sets, read_given)
  missing = [name for name in sets if not _is_there(name, root, log)]
  wanted = [] if given else [a for name in missing for a in archives[name]]
  absent = [a for a in wanted if not (folder / a.name).exists()]
  if absent:  # all of it, for a machine without a network
    megabytes = sum(archive.size for archive in absent) / download.MEGABYTE
    lines = [f'  {a.url}  as {a.name}' for a in absent]
    log('\n'.join([f'To be in {folder}, {megabytes:,.0f} MB:', *lines]))
  for name in sets:
    if name in missing:
      files = given or [download.fetch(a, folder) for a in archives[name]]
      into = prepared.folder_of(name, root)
      _write_arrays(name, files, read[name], into, log)
    log(f'Runs read it with --config.dataset={name} --config.data_dir={root}')


@may_read('data_dir')
def prepare_clients(
  names: Sequence[str], data_dir: str, to: str, log: Log = progress.log
) -> None:
  """Write a set that runs read as a folder of its clients, which they map."""
  if len(names) != 1:
    raise bad_input('to', got=f'{len(names)} sets', expected='one data set')
  dataset = load_dataset(names[0], data_dir=data_dir, log_fn=log)
  write_clients(
    to,
    by_client(dataset),
    num_classes=dataset.num_classes,
    client_names=dataset.client_names,
    class_names=dataset.class_names,
  )
  log(
    f'Runs read it with --config.dataset=clients --config.data_dir={to} '
    '--config.partition=natural --config.num_clients=0'
  )


def _given_files(
  sets: Sequence[str], sources: Mapping[str, str | os.PathLike]
) -> tuple[list[pathlib.Path], Callable]:
  """Return the user's files of the one set that is prepared of them."""
  (kind, path), *others = sources.items()
  likely, wanted = GIVEN[kind]
  if len(sets) != 1 or sets[0] not in likely or others or not path:
    raise bad_input(
      kind,
      got=f'{path or "nothing"} for {", ".join(sets) or "no set"}',
      expected=wanted,
      choices=likely,
      cause='several sets in one command, or a set of another format',
    )
  path = expand_home(kind, path)
  if kind == 'idx_files':
    return find_files(path, prepared.PREPARED[sets[0]]), read_mnist
  if kind == 'text':
    return [path], read_play
  return [path], lambda files: read_leaf(sets[0], *files)


def _is_there(name: str, root: pathlib.Path, log: Log) -> bool:
  """Return whether runs find the set, and it has its fingerprint."""
  folder = prepared.folder_of(name, root)
  if not folder.is_dir():
    return False
  state, is_sound = 'damaged, and is written again', False
  try:
    dataset = prepared.read(name, root)
    is_sound = digest(*dataset.train, *dataset.test) == dataset.fingerprint
  except BadInput as error:
    if isinstance(error.__cause__, PermissionError):
      raise
  if is_sound:
    state = 'there already; without that folder it is prepared anew'
  log(f'{name} in {folder} is {state}.')
  return is_sound


def _write_arrays(
  name: str,
  files: Sequence[pathlib.Path],
  read: Callable,
  folder: pathlib.Path,
  log: Log,
) -> None:
  log(f'Reading {name} from {", ".join(file.name for file in files)}')
  train, test, *clients = read(files)
  num_classes = prepared.PREPARED[name].num_classes
  dataset = make_dataset(name, train, test, num_classes)
  if clients:
    dataset = dataset._replace(clients=clients[0])
  with download.writing(folder):
    write_entry(folder, dataset)
  kind = 'examples' if clients else 'images'
  whose = f' of {clients[0][0].max() + 1:,} clients' if clients else ''
  log(
    f'{name}: {len(train.y):,} training and {len(test.y):,} test {kind}{whose} '
    f'in {folder}; fingerprint {dataset.fingerprint}'
  )
