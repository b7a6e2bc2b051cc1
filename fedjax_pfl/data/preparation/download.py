"""Download an archive, and check it by its SHA-256.

archives.tsv has the address, size and digest of each: those that TensorFlow
Datasets checks (4.9.10); of Tiny-ImageNet the address of its authors' course,
and the digest that users of it publish.

What arrives is in NAME.part; NAME appears when it is whole and has its digest.
"""

import csv
import functools
import http.client
import pathlib
import urllib.request
from typing import NamedTuple

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import bad_input

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 20
MEGABYTE = 10**6
# An error in here is the disk's, not the network's.
writing = functools.partial(atomic_files.writing, name='data_dir')


class Archive(NamedTuple):
  """A file on the network, and how to recognise it."""

  url: str
  size: int  # bytes
  sha256: str
  name: str  # of the file on this disk: several sets call theirs train-images


def _read_table() -> dict[str, tuple[Archive, ...]]:
  """Return the archives of every image set, in the order of the file."""
  archives: dict[str, tuple[Archive, ...]] = {}
  text = pathlib.Path(__file__).with_name('archives.tsv').read_text()
  for row in csv.DictReader(text.splitlines(), delimiter='\t'):
    name = row.pop('set')
    archive = Archive(**{**row, 'size': int(row['size'])})
    archives[name] = (*archives.get(name, ()), archive)
  return archives


ARCHIVES = _read_table()


def fetch(archive: Archive, folder: pathlib.Path) -> pathlib.Path:
  """Return the file in the folder, downloaded unless it is there."""
  file, part = folder / archive.name, folder / f'{archive.name}.part'
  if file.exists():
    _check(archive, file)
    return file
  try:
    _receive(archive, part)
  except (OSError, http.client.HTTPException) as error:
    raise bad_input(
      archive.name,
      got=f'{error}, from {archive.url}',
      expected=f'a network that reaches it, or the file itself as {file}',
      choices=[
        'the same command again, when the network is there',
        f'fetch it on another machine and copy it to {folder}',
      ],
      cause='a machine without a network, one behind a proxy (set '
      '$https_proxy and $http_proxy), or a server that is down',
    ) from error
  _check(archive, part)
  part.replace(file)
  return file


def _receive(archive: Archive, part: pathlib.Path) -> None:
  """Write what the server sends; one byte too many shows another file."""
  total, have = -(-archive.size // MEGABYTE), 0
  agent = {'User-Agent': 'fedjax_pfl'}
  request = urllib.request.Request(archive.url, headers=agent)
  with (
    urllib.request.urlopen(request, timeout=TIMEOUT) as response,
    progress.progress(archive.name, total, unit='MB') as bar,
  ):
    with writing(part.parent):
      part.parent.mkdir(parents=True, exist_ok=True)
      part.unlink(missing_ok=True)
      part.touch(exist_ok=False)
    while have <= archive.size and (block := response.read(BLOCK)):
      # Opened for each block, so that no error of the network is in here.
      with writing(part.parent), open(part, 'ab') as stream:
        stream.write(block)
      have += len(block)
      bar.update(min(have, archive.size) // MEGABYTE)


def _check(archive: Archive, file: pathlib.Path) -> None:
  """Refuse another file; remove one that was downloaded."""
  size, digest = file.stat().st_size, atomic_files.sha256(file)
  if (size, digest) == (archive.size, archive.sha256):
    return
  if file.name != archive.name:
    file.unlink()
  raise bad_input(
    archive.name,
    got=f'{file} with {size:,} bytes and SHA-256 {digest}',
    expected=f'{archive.size:,} bytes with SHA-256 {archive.sha256}',
    choices=['delete the file and repeat the command', archive.url],
    cause='a file that was changed or cut short, or the page of a proxy that '
    'asks for a password',
  )
