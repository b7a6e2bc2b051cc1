"""Download a file: resumed where it stopped, and checked by its SHA-256.

What has arrived is in NAME.part; NAME appears when it is whole and has the
digest that is known. A connection that breaks is opened again, from the byte
that it broke at, as long as every attempt brings the file forward.
"""

import functools
import http.client
import pathlib
import urllib.error
import urllib.request

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.atomic_files import sha256
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.preparation.archives import Archive

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 20
MEGABYTE = 10**6
# An error in here is the disk's, not the network's.
writing = functools.partial(
  atomic_files.writing, name='data_dir', files='the archives and their arrays'
)
FAILURES = (OSError, http.client.HTTPException)  # URLError is an OSError


def fetch(archive: Archive, folder: pathlib.Path) -> pathlib.Path:
  """Return the file in the folder, downloaded unless it is there.

  Raises BadInput without a network, and for another file than expected.
  """
  place = folder / archive.name
  if place.exists():
    _check(archive, place)
    return place
  part = folder / f'{archive.name}.part'
  total, start = _megabytes(archive.size), _size(part) // MEGABYTE
  unit = f'{archive.name}, MB'
  with progress.progress(archive.name, total, unit=unit, start=start) as bar:
    while _size(part) < archive.size:
      before = _size(part)
      error = _receive(archive, part, bar)
      if _size(part) <= before:
        raise _unreachable(archive, place, error)
  try:
    _check(archive, part)
  except BadInput:
    part.unlink()
    raise
  part.replace(place)
  return place


def _receive(
  archive: Archive, part: pathlib.Path, bar: progress.Bar
) -> Exception | None:
  """Add what one connection brings; return the error that ended it."""
  try:
    with _request(archive, _size(part)) as response:
      goes_on = getattr(response, 'status', None) == 206
      _check_length(archive, part, response, goes_on)
      _write(archive, part, response, goes_on, bar)
  except urllib.error.HTTPError as error:
    if error.code == 416:  # the server's file is shorter than our part of it
      part.unlink()
    return error
  except FAILURES as error:
    return error
  return None


def _request(archive: Archive, have: int):
  headers = {'User-Agent': 'fedjax_pfl'}
  if have:
    headers['Range'] = f'bytes={have}-'
  request = urllib.request.Request(archive.url, headers=headers)
  return urllib.request.urlopen(request, timeout=TIMEOUT)


def _write(archive, part, response, goes_on, bar) -> None:
  with writing(part.parent):
    part.parent.mkdir(parents=True, exist_ok=True)
    if not goes_on:
      part.write_bytes(b'')
  # One byte more than expected is enough to see another file.
  while _size(part) <= archive.size and (block := response.read(BLOCK)):
    # Opened for each block, so that no error of the network is in here.
    with writing(part.parent), open(part, 'ab') as stream:
      stream.write(block)
    have = _size(part)
    is_whole = have >= archive.size
    bar.update(_megabytes(archive.size) if is_whole else have // MEGABYTE)


def _check_length(archive, part, response, goes_on) -> None:
  """Refuse a file of another length before it is received."""
  length = response.headers.get('Content-Length')
  if goes_on:
    length = response.headers.get('Content-Range', '').rpartition('/')[2]
  if length and length.isdecimal() and int(length) != archive.size:
    part.unlink(missing_ok=True)
    raise _another(archive, archive.url, f'{int(length):,} bytes')


def _check(archive: Archive, file: pathlib.Path) -> None:
  if _size(file) != archive.size:
    raise _another(archive, file, f'{_size(file):,} bytes')
  digest = sha256(file)
  if digest != archive.sha256:
    raise _another(archive, file, f'SHA-256 {digest}')


def _megabytes(size: int) -> int:
  return -(-size // MEGABYTE)


def _size(file: pathlib.Path) -> int:
  try:
    return file.stat().st_size
  except OSError:
    return 0


def _another(archive: Archive, place: object, got: str) -> BadInput:
  return bad_input(
    archive.name,
    got=f'{place} with {got}',
    expected=f'{archive.size:,} bytes with SHA-256 {archive.sha256}',
    choices=['delete the file and repeat the command', archive.url],
    cause='a file that was changed or cut short, or the page of a proxy that '
    'asks for a password',
  )


def _unreachable(
  archive: Archive, place: pathlib.Path, error: Exception | None
) -> BadInput:
  why = error or 'the connection ended'
  if type(error) is urllib.error.URLError:  # what it is about, not its name
    why = getattr(error.reason, 'strerror', None) or error.reason
  return bad_input(
    archive.name,
    got=f'{why}, from {archive.url}',
    expected=f'a network that reaches it, or the file itself as {place}',
    choices=[
      'the same command again, which goes on where it stopped',
      f'fetch it on another machine and copy it to {place.parent}',
    ],
    cause='a machine without a network, one behind a proxy (set $https_proxy '
    'and $http_proxy), or a server that is down',
  )
