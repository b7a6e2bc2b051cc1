"""Find the image files of a folder, and who holds them; nothing is decoded.

  train/CLASS/*, test/CLASS/*     no clients
  CLIENT/CLASS/*                  clients, no split
  CLIENT/{train,test}/CLASS/*     clients, and a split of each
  FILE.csv                        columns path, label, and optionally client and
                                  split; paths begin at the folder of the file

Files lie in the order of clients, classes and file names; rows of a CSV in its
own. Folders whose names begin with . or __, as .ipynb_checkpoints and __MACOSX
do, and those without images are left out.
"""

import collections
import csv
import pathlib
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.images import SPLITS, natural_key

SUFFIXES = {'.png', '.jpg', '.jpeg', '.bmp', '.webp'}
SOUNDS = {'.wav'}  # an example is a sound, if all of them are
HIDDEN = ('.', '__')  # folders that programs leave behind
TABLE = '.csv'
Folder = pathlib.Path
# A file, its class, its client or '', its split.
Row = tuple[pathlib.Path, str, str, str]


class Listing(NamedTuple):
  """The files of an image set, in the order of their rows."""

  files: list[pathlib.Path]
  labels: np.ndarray  # [P]
  classes: list[str]
  is_test: np.ndarray  # [P] bool
  owners: np.ndarray  # [P]; all 0 without clients
  clients: list[str]  # their names
  layout: str

  @property
  def is_sound(self) -> bool:
    return self.files[0].suffix.lower() in SOUNDS

  def describe(self) -> str:
    """Return what was found: clients, classes, images and their split."""
    tests = int(self.is_test.sum())
    who = ''
    if self.clients:
      number = len(self.clients)
      who = f'{number:,} client{"s" * (number > 1)} (of partition=natural), '
    split = f'{tests:,} for testing' if tests else 'none of them for testing'
    return (
      f'{self.layout}: {who}{len(self.classes):,} classes, '
      f'{len(self.files):,} {"sounds" if self.is_sound else "images"}, {split}'
    )


def refuse(root: pathlib.Path, got: str) -> BadInput:
  """Return the exception that explains the layouts."""
  return bad_input(
    'data_dir',
    got=f'{root}, {got}',
    expected='image files in train/CLASS/ and test/CLASS/, in CLIENT/CLASS/ or '
    'in CLIENT/train/CLASS/ and CLIENT/test/CLASS/; or a .csv with the columns '
    'path, label, and optionally client and split',
    choices=sorted(SUFFIXES | SOUNDS),
    cause='a path one level too high or too low (--config.data_dir=...), or '
    'an archive that was unpacked in part',
  )


def is_table(root: pathlib.Path) -> bool:
  """Return whether this is a CSV file, and no pipe of that name."""
  return root.suffix.lower() == TABLE and root.is_file()


def find(root: pathlib.Path) -> Listing:
  """Return the files below a folder, or in a table."""
  if not root.exists():
    raise refuse(root.absolute(), 'where nothing is')
  if is_table(root):
    return _listing(root, _of_table(root), root.name)
  if (root / 'train').is_dir():
    layout, rows = '{train,test}/CLASS', _of_splits(root, '')
  elif (root / 'test').is_dir():
    raise refuse(root, 'without train/')
  else:
    clients = sorted(_folders(root), key=lambda own: natural_key(own.name))
    split = [client for client in clients if (client / 'train').is_dir()]
    rows, layout = [], 'CLIENT/{train,test}/CLASS' if split else 'CLIENT/CLASS'
    for client in clients:
      read = _of_splits if split else _of_classes
      of_client = read(client, client.name)
      if split and not of_client and _of_classes(client, ''):
        raise refuse(
          root, f'where {split[0].name} has train/, and {client.name} has not'
        )
      rows += of_client
    _check_domains(root, rows, bool(split))
  if not rows:
    raise refuse(root, 'without train/ and without an image two levels below')
  return _listing(root, rows, f'{root}/{layout}')


def _check_domains(root: Folder, rows: list[Row], is_split: bool) -> None:
  """Refuse a domain of one class if all others have all three or more."""
  classes: dict[str, set[str]] = {}
  for _, label, client, split in rows:
    if split == 'train':
      classes.setdefault(client, set()).add(label)
  sizes, total = {*map(len, classes.values())}, set().union(*classes.values())
  if is_split and sizes == {1, len(total)} and len(total) > 2:
    name, (only,) = next(item for item in classes.items() if len(item[1]) == 1)
    raise bad_input(
      'data_dir',
      got=f'{root}, where {name}/train has one class, {only}, and the other '
      f'domains have {len(total)}',
      expected='two classes or more in each domain',
      choices=['a .csv with the columns path, label, client and split'],
      cause='a domain that was unpacked in part',
    )


def _listing(root: pathlib.Path, rows: list[Row], layout: str) -> Listing:
  """Return the rows as arrays, checked; classes are numbered by their order."""
  files, labels, clients, splits = map(list, zip(*rows, strict=True))
  if len({file.suffix.lower() in SOUNDS for file in files}) > 1:
    raise refuse(root, 'with sounds beside images')
  is_test = np.array(splits) == 'test'
  # Folders as they always were; the numbers of a table in their own order.
  order = natural_key if is_table(root) else None
  train = {name for name, test in zip(labels, is_test, strict=True) if not test}
  classes = sorted(train, key=order)
  if unknown := sorted({*labels} - train):
    raise refuse(
      root, f'where test images have classes that train lacks: {unknown[:5]}'
    )
  if len(classes) < 2:
    raise refuse(root, f'with images of one class, {classes[0]}')
  number = {name: at for at, name in enumerate(classes)}
  names = sorted({*clients} - {''}, key=natural_key)
  at = {name: at for at, name in enumerate(names or [''])}
  owners = np.array([at[name] for name in clients])
  labels = np.array([number[name] for name in labels])
  return Listing(files, labels, classes, is_test, owners, names, layout)


def _folders(folder: Folder) -> list[Folder]:
  children = sorted(folder.iterdir()) if folder.is_dir() else ()
  return [c for c in children if not c.name.startswith(HIDDEN) and c.is_dir()]


def _of_splits(folder: Folder, client: str) -> list[Row]:
  """Return the rows of a folder with train/, and mostly with test/."""
  rows = []
  for split in SPLITS:
    of_split = _of_classes(folder / split, client, split)
    is_wanted = split == 'train' or (folder / 'test').exists()
    if not of_split and is_wanted and not client:
      raise refuse(folder, f'no labelled images for {split}')
    rows += of_split
  return rows


def _of_classes(folder: Folder, client: str, split: str = 'train') -> list[Row]:
  return [
    (file, child.name, client, split)
    for child in _folders(folder)
    for file in sorted(child.iterdir())
    if file.suffix.lower() in SUFFIXES | SOUNDS
    and not file.name.startswith(HIDDEN)
  ]


def _of_table(file: pathlib.Path) -> list[Row]:
  """Return the rows of a CSV file, each of which leads to a file."""
  try:
    with file.open(encoding='utf-8-sig', newline='') as stream:
      table = csv.DictReader(stream)
      lines, columns = [*table], table.fieldnames or ()
  except (UnicodeDecodeError, csv.Error) as error:
    raise refuse(file, f'which is no text of commas: {error}') from error
  if not lines or not {'path', 'label'} <= {*columns}:
    raise refuse(file, f'with {len(lines)} rows of the columns {columns}')
  rows = []
  for number, line in enumerate(lines, 2):  # after the header
    split = (line['split'] or '') if 'split' in columns else 'train'
    name, label = line['path'] or '', line['label'] or ''
    client = (line['client'] or '') if 'client' in columns else ''
    if not (name and label) or ('client' in columns and not client):
      raise refuse(file, f'whose line {number} has an empty cell')
    if split not in SPLITS:
      raise refuse(file, f'whose line {number} has the split {split!r}')
    path = file.parent / name
    if not path.is_file():
      raise refuse(file, f'whose line {number} names {path}, which is no file')
    rows.append((path, label, client, split))
  owned = collections.Counter((path, client) for path, _, client, _ in rows)
  (twice, times), *_ = owned.most_common(1)
  if times > 1:
    raise refuse(file, f'with {times} rows for {twice[0]}')
  return rows
