"""Disks that are full, or may not be written.

From one change of a file on, every further one fails: the command ends in a
sentence. Once there is room, the same command ends in the bits of the run that
always had some.
"""

import errno
import os
import tempfile
from pathlib import Path

import numpy as np

from faults import tiny
from faults.watch import watching

FULL = ('open', 'os.mkdir', 'flush')  # what a full disk refuses
ALL = (*FULL, 'os.rename', 'os.remove', 'os.rmdir')
ERRORS = ((errno.ENOSPC, FULL), (errno.EIO, ALL), (errno.EROFS, ALL))


def run(count: int, seed: int):
  """Try `count` refusals."""
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


def refused(folder: Path, point: int, error: int, which, want: dict) -> str:
  """Return '' if a run whose disk refuses from a change on ends well."""
  passed = []

  def refuse(what, path):
    passed.append(what)
    if len(passed) > point and what in which:
      raise OSError(error, os.strerror(error))

  with watching(folder, refuse):
    end = tiny.how_it_ends(folder, want)
  if end in ('a sentence', 'same bits'):
    end = tiny.how_it_ends(folder, want)  # now there is room
  where = f'change {point} refused ({errno.errorcode[error]})'
  return '' if end == 'same bits' else f'{where}: {end}'
