"""Read the handwritten digits, which the package brings.

digits.csv.gz is scikit-learn's file, byte for byte: the test set of the UCI
"Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998;
CC BY 4.0).
"""

import pathlib

import numpy as np

from fedjax_pfl.data.images import Dataset, Shape, Where, divide, make_dataset

FILE = pathlib.Path(__file__).with_name('digits.csv.gz')


def peek(where: Where) -> Shape:
  """Return image shape and number of classes."""
  return Shape((8, 8, 1), 10)


def load(where: Where) -> Dataset:
  """Return the digits; every fifth image of a class is for testing.

  1,442 and 355 images, in the order of the file. Values 0 .. 16 are scaled to
  0 .. 255.
  """
  rows = np.loadtxt(FILE, delimiter=',')
  x, y = rows[:, :-1], rows[:, -1].astype(int)
  x = np.round(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
  is_test = np.zeros(len(y), bool)
  for label in range(10):
    is_test[np.flatnonzero(y == label)[4::5]] = True
  return make_dataset(where.name, *divide(x, y, is_test), num_classes=10)
