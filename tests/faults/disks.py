"""Disks that are full, or may not be written.

  refused   from one change of a file on, every further one fails
  full      a small disk of its own (root may mount one), of many sizes
  read-only the same disk, mounted so between two commands

The command ends in a sentence. Once there is room, the same command ends in
the bits of the run that always had some.
"""

import contextlib
import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faults import tiny
from faults.moments import watching
from faults.outcome import Outcome, outcome_of

FULL = ('open', 'os.mkdir', 'flush')  # what a full disk refuses
ALL = (*FULL, 'os.rename', 'os.remove', 'os.rmdir')
ERRORS = ((errno.ENOSPC, FULL), (errno.EIO, ALL), (errno.EROFS, ALL))
GOOD = ('a sentence', 'same bits')


def run(count: int, seed: int) -> list[Outcome]:
  """Try `count` refusals, a tenth as many small disks and read-only ones."""
  with tempfile.TemporaryDirectory() as name:
    folder, changes = Path(name), []
    with watching(folder / 'whole', changes.append):
      tiny.play(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    points = np.random.default_rng(seed).integers(len(changes), size=count)
    refusals = [
      refused(folder / str(i), n, *ERRORS[i % 3], want)
      for i, n in enumerate(points)
    ]
    outcomes = [outcome_of('a disk that refuses a change', refusals)]
    if can_mount(folder):
      sizes = np.linspace(4, 400, max(count // 10, 1)).astype(int)
      ends = [full(folder, size, want) for size in sizes]
      outcomes.append(outcome_of('a full disk', ends))
      rounds = range(max(count // 50, 1))
      ends = [read_only(folder, number, want) for number in rounds]
      outcomes.append(outcome_of('a disk that became read-only', ends))
    return outcomes


def refused(folder: Path, point: int, error: int, which, want: dict) -> str:
  """Return '' if a run whose disk refuses from a change on ends well."""
  passed = []

  def refuse(what):
    passed.append(what)
    if len(passed) > point and what in which:
      raise OSError(error, os.strerror(error))

  with watching(folder, refuse):
    end = tiny.how_it_ends(folder, want)
  where = f'change {point} refused ({errno.errorcode[error]})'
  return _then(where, end, GOOD, folder, want)


def _then(where: str, end: str, good, folder: Path, want: dict) -> str:
  """Return '' if that was a good end, and the next command's is, with room."""
  if end not in good:
    return f'{where}: {end}'
  end = tiny.how_it_ends(folder, want)
  return '' if end == 'same bits' else f'{where}, then: {end}'


def can_mount(folder: Path) -> bool:
  try:
    with small_disk(folder / 'tried', 64):
      return True
  except (OSError, subprocess.CalledProcessError):
    return False


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
  """Yield a folder on a disk of its own."""
  folder.mkdir(exist_ok=True)
  _mount('-t', 'tmpfs', '-o', f'size={kilobytes}k', 'tmpfs', folder)
  try:
    yield folder / 'run'
  finally:
    subprocess.run(['umount', str(folder)], check=True, capture_output=True)


def _mount(*arguments) -> None:
  command = ['mount', *map(str, arguments)]
  subprocess.run(command, check=True, capture_output=True)


def full(folder: Path, kilobytes: int, want: dict) -> str:
  """Return '' if a run on a disk of this size ends well."""
  with small_disk(folder / 'disk', kilobytes) as workdir:
    end = tiny.how_it_ends(workdir, want)
    _mount('-o', 'remount,size=8m', folder / 'disk')
    return _then(f'{kilobytes} kB', end, GOOD, workdir, want)


def read_only(folder: Path, rounds: int, want: dict) -> str:
  """Return '' if a run whose disk became read-only ends well."""
  with small_disk(folder / 'disk', 8192) as workdir:
    # Broken off at some change of a file; 0: nothing was begun.
    refused(workdir, 40 * rounds, errno.EIO, ALL, {})
    _mount('-o', 'remount,ro', folder / 'disk')
    end = tiny.how_it_ends(workdir, want)
    _mount('-o', 'remount,rw', folder / 'disk')
    return _then(f'read-only {rounds}', end, GOOD[:1], workdir, want)
