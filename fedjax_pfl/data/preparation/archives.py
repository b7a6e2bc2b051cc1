"""Where the official archives are: address, size and SHA-256 of each.

archives.tsv has a line for each. Those of all sets but Tiny-ImageNet are the
ones that TensorFlow Datasets checks (`url_checksums/` and `checksums.tsv` in
its package, 4.9.10), so that its sets and ours are made of the same bytes. It
has no Tiny-ImageNet: the address is that of its authors' course, the digest
the one that users of it publish.
"""

import csv
import pathlib
from typing import NamedTuple


class Archive(NamedTuple):
  """A file on the network, and how to recognise it."""

  url: str
  size: int  # bytes
  sha256: str
  name: str  # of the file on this disk: several sets call theirs train-images


def _read_table() -> dict[str, tuple[Archive, ...]]:
  """Return the archives of every image set, in the order of the file."""
  archives: dict[str, tuple[Archive, ...]] = {}
  text = pathlib.Path(__file__).with_suffix('.tsv').read_text()
  for row in csv.DictReader(text.splitlines(), delimiter='\t'):
    one = Archive(row['url'], int(row['size']), row['sha256'], row['name'])
    archives[row['set']] = (*archives.get(row['set'], ()), one)
  return archives


ARCHIVES = _read_table()
# What a command line may say instead.
SHORT_NAMES = {'emnist': 'emnist/byclass', 'svhn': 'svhn_cropped'}
