"""What a program asks of the system: the pages of rows, anywhere in a file."""

import mmap

import numpy as np

from fedjax_pfl.core.machine import read_ahead

HEADER, SIZE = 128, 1000  # bytes, before the rows and of each


class Recorder(mmap.mmap):
  """A mapped file that notes what is asked for."""

  def madvise(self, advice, begin, length):
    assert advice == mmap.MADV_WILLNEED
    self.asked = [*getattr(self, 'asked', ()), (begin, begin + length)]


def test_the_pages_of_rows_are_asked_for(tmp_path):
  """Of numbers of 32 bits, in a hole of 6 GB."""
  first = np.array([0, 7, 3_000_000], np.int32)
  stop = np.array([1, 90, 6_000_000], np.int32)
  with open(tmp_path / 'hole', 'w+b') as stream:
    stream.truncate(HEADER + SIZE * int(stop[-1]))
    pages = Recorder(stream.fileno(), 0, access=mmap.ACCESS_READ)
  shape = stop[-1], SIZE
  file = np.ndarray.__new__(np.memmap, shape, np.uint8, pages, HEADER)
  file._mmap = pages
  read_ahead(file, first, stop)
  for (begin, end), low, high in zip(pages.asked, first, stop, strict=True):
    assert begin % mmap.PAGESIZE == 0
    assert 0 <= HEADER + SIZE * int(low) - begin < mmap.PAGESIZE
    assert end == HEADER + SIZE * int(high)
