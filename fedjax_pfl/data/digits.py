"""The digits of scikit-learn: 8x8 images, which need no download."""

import importlib.util
import pathlib

import numpy as np

from fedjax_pfl.data.images import Dataset, Images, Shape, make_dataset

SHAPE = Shape((8, 8, 1), 10)


def load_digits() -> Dataset:
  """Return the digits; every fifth image of a class is for testing.

  1,442 and 355 images, in the order of the file. Values 0 .. 16 are scaled to
  0 .. 255.
  """
  x, y = _read_digits()
  x = np.round(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
  is_test = np.zeros(len(y), bool)
  for label in range(10):
    is_test[np.flatnonzero(y == label)[4::5]] = True
  train, test = (
    Images(x[rows], y[rows].astype(np.int32)) for rows in (~is_test, is_test)
  )
  return make_dataset('digits', train, test, num_classes=10)


def _read_digits() -> tuple[np.ndarray, np.ndarray]:
  """Return pixels [P, 64] and labels [P] from the file in scikit-learn.

  Without importing scikit-learn: that takes two seconds.
  """
  package = pathlib.Path(importlib.util.find_spec('sklearn').origin).parent
  file = package / 'datasets' / 'data' / 'digits.csv.gz'
  rows = np.loadtxt(file, delimiter=',')
  return rows[:, :-1], rows[:, -1].astype(int)
