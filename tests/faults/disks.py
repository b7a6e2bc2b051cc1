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
from faults.outcome import Outcome

FULL = ('open', 'os.mkdir', 'flush')  # what a full disk refuses
ALL = (*FULL, 'os.rename', 'os.remove', 'os.rmdir')
ERRORS = ((errno.ENOSPC, FULL), (errno.EIO, ALL), (errno.EROFS, ALL))


def run(count: int, seed: int) -> list[Outcome]:
  """Try `count` refusals, a tenth as many small disks and read-only ones."""
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    changes = []
    with watching(folder / 'whole', changes.append):
      tiny.play(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    rng = np.random.default_rng(seed)
    points = rng.integers(len(changes), size=count)
    outcomes = [
      _outcome(
        'a disk that refuses a change',
        [
          refused(folder / str(i), n, *ERRORS[i % 3], want)
          for i, n in enumerate(points)
        ],
      )
    ]
    if can_mount(folder):
      sizes = np.linspace(4, 400, max(count // 10, 1)).astype(int)
      outcomes += [
        _outcome('a full disk', [full(folder, size, want) for size in sizes]),
        _outcome(
          'a disk that became read-only',
          [read_only(folder, n, want) for n in range(max(count // 50, 1))],
        ),
      ]
    return outcomes


def _outcome(name: str, ends: list[str]) -> Outcome:
  failures = tuple(end for end in ends if end)
  return Outcome(name, len(ends), len(ends) - len(failures), failures)


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
  if end not in ('a sentence', 'same bits'):
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
  options = f'size={kilobytes}k'
  _mount('-t', 'tmpfs', '-o', options, 'tmpfs', folder)
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
    if end not in ('a sentence', 'same bits'):
      return f'{kilobytes} kB: {end}'
    _mount('-o', 'remount,size=8m', folder / 'disk')
    end = tiny.how_it_ends(workdir, want)
    return '' if end == 'same bits' else f'{kilobytes} kB, then room: {end}'


def read_only(folder: Path, rounds: int, want: dict) -> str:
  """Return '' if a run whose disk became read-only ends well."""
  with small_disk(folder / 'disk', 8192) as workdir:
    # Broken off at some change of a file; 0: nothing was begun.
    refused(workdir, 40 * rounds, errno.EIO, ALL, {})
    _mount('-o', 'remount,ro', folder / 'disk')
    end = tiny.how_it_ends(workdir, want)
    _mount('-o', 'remount,rw', folder / 'disk')
    if end != 'a sentence':
      return f'read-only {rounds}: {end}'
    end = tiny.how_it_ends(workdir, want)
    return '' if end == 'same bits' else f'read-only {rounds}, then: {end}'
