"""Download an archive: resumed where it stopped, and checked by its SHA-256.

archives.tsv has the address, size and digest of each. Those of all sets but
Tiny-ImageNet are the ones that TensorFlow Datasets checks (4.9.10), so that its
sets and ours are made of the same bytes. The address of Tiny-ImageNet is that
of its authors' course, the digest the one that users of it publish.

What has arrived is in NAME.part; NAME appears when it is whole and has its
digest. A connection that breaks is opened again, from the byte that it broke
at, as long as every attempt brings the file forward.
"""

import csv
import functools
import http.client
import pathlib
import urllib.error
import urllib.request
from typing import NamedTuple

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import bad_input

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 20
MEGABYTE = 10**6
# An error in here is the disk's, not the network's.
writing = functools.partial(
  atomic_files.writing,
  name='data_dir',
  expected='a disk that takes the archives and their arrays',
)


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
    one = Archive(row['url'], int(row['size']), row['sha256'], row['name'])
    archives[row['set']] = (*archives.get(row['set'], ()), one)
  return archives


ARCHIVES = _read_table()


def fetch(archive: Archive, folder: pathlib.Path) -> pathlib.Path:
  """Return the file in the folder, downloaded unless it is there.

  Raises BadInput without a network, and for another file than expected.
  """
  place, part = folder / archive.name, folder / f'{archive.name}.part'
  if place.exists():
    _check(archive, place)
    return place
  total, start = -(-archive.size // MEGABYTE), _size(part) // MEGABYTE
  unit = f'{archive.name}, MB'
  with progress.progress(archive.name, total, unit=unit, start=start) as bar:
    while (before := _size(part)) < archive.size:
      error = _receive(archive, part, bar)
      if _size(part) <= before:
        raise bad_input(
          archive.name,
          got=f'{error or "the connection ended"}, from {archive.url}',
          expected=f'a network that reaches it, or the file itself as {place}',
          choices=[
            'the same command again, which goes on where it stopped',
            f'fetch it on another machine and copy it to {folder}',
          ],
          cause='a machine without a network, one behind a proxy (set '
          '$https_proxy and $http_proxy), or a server that is down',
        ) from error
    bar.update(total)
  _check(archive, part)
  part.replace(place)
  return place


def _receive(
  archive: Archive, part: pathlib.Path, bar: progress.Bar
) -> Exception | None:
  """Add what one connection brings; return the error that ended it."""
  have, headers = _size(part), {'User-Agent': 'fedjax_pfl'}
  if have:
    headers['Range'] = f'bytes={have}-'
  request = urllib.request.Request(archive.url, headers=headers)
  try:
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
      with writing(part.parent):
        part.parent.mkdir(parents=True, exist_ok=True)
        if getattr(response, 'status', None) != 206:  # from the first byte
          part.write_bytes(b'')
      # One byte more than expected is enough to see another file.
      while _size(part) <= archive.size and (block := response.read(BLOCK)):
        # Opened for each block, so that no error of the network is in here.
        with writing(part.parent), open(part, 'ab') as stream:
          stream.write(block)
        bar.update(min(_size(part), archive.size) // MEGABYTE)
  except (OSError, http.client.HTTPException) as error:
    # The server's file may be shorter than our part of it.
    if isinstance(error, urllib.error.HTTPError) and error.code == 416:
      part.unlink()
    return error
  return None


def _check(archive: Archive, file: pathlib.Path) -> None:
  """Refuse another file; remove one that was downloaded."""
  size, digest = _size(file), atomic_files.sha256(file)
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


def _size(file: pathlib.Path) -> int:
  return file.stat().st_size if file.is_file() else 0
