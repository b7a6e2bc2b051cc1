"""Disks that are full, or may not be written.

  refused   from one change of a file on, every further one fails
  full      a small disk of its own (root may mount one), of many sizes

The command ends in a sentence. Once there is room, the same command ends in
the bits of the run that always had some.
"""

import contextlib
import errno
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from faults import tiny
from faults.watch import watching

FULL = ('open', 'os.mkdir', 'flush')  # what a full disk refuses
ALL = (*FULL, 'os.rename', 'os.remove', 'os.rmdir')
ERRORS = ((errno.ENOSPC, FULL), (errno.EIO, ALL), (errno.EROFS, ALL))


def run(count: int, seed: int):
  """Try `count` refusals, and a tenth as many small disks."""
  with tempfile.TemporaryDirectory() as name:
    folder, changes = Path(name), []
    with watching(folder / 'whole', lambda *change: changes.append(change)):
      tiny.play(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    points = np.random.default_rng(seed).integers(len(changes), size=count)
    ends = [
      refused(folder / str(i), n, *ERRORS[i % 3], want)
      for i, n in enumerate(points)
    ]
    yield 'a disk that refuses a change', ends
    sizes = np.linspace(4, 400, max(count // 10, 1)).astype(int)
    with contextlib.suppress(PermissionError):  # only root may mount one
      yield 'a full disk', [full(folder / 'disk', n, want) for n in sizes]


def refused(folder: Path, point: int, error: int, which, want: dict) -> str:
  """Return '' if a run whose disk refuses from a change on ends well."""
  passed = []

  def refuse(what, path):
    passed.append(what)
    if len(passed) > point and what in which:
      raise OSError(error, os.strerror(error))

  with watching(folder, refuse):
    end = tiny.how_it_ends(folder, want)
  where = f'change {point} refused ({errno.errorcode[error]})'
  return _then(where, end, folder, want)


def _then(where: str, end: str, folder: Path, want: dict) -> str:
  """Return '' if that was a good end, and the next command's is, with room."""
  if end in ('a sentence', 'same bits'):
    end = tiny.how_it_ends(folder, want)
  return '' if end == 'same bits' else f'{where}: {end}'


def full(disk: Path, kilobytes: int, want: dict) -> str:
  """Return '' if a run on a disk of this size ends well."""
  disk.mkdir(exist_ok=True)
  mount = ['mount', '-t', 'tmpfs', 'tmpfs', str(disk)]
  if subprocess.run(
    [*mount, '-o', f'size={kilobytes}k'], stderr=subprocess.DEVNULL
  ).returncode:
    raise PermissionError
  try:
    end = tiny.how_it_ends(disk / 'run', want)
    subprocess.run([*mount, '-o', 'remount,size=8m'], check=True)
    return _then(f'{kilobytes} kB', end, disk / 'run', want)
  finally:
    subprocess.run(['umount', str(disk)], check=True)
