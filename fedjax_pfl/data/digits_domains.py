"""Make five domains of scikit-learn's digits: no download, feature shift only.

  plain      x, grey, as are all but the coloured ones
  inverted   255 - x
  coloured   g + (i - g) x / 255,  ink i and ground g of an image drawn
  blurred    the mean of 3 x 3 pixels
  rotated    a quarter turn to the left

[8, 8, 3] bytes. A digit for training is in one domain, so that each has about
288; the 355 for testing are in all five. A domain is a client of
partition=natural.
"""

import numpy as np

from fedjax_pfl.data import digits, images
from fedjax_pfl.data.images import Dataset, Images, Shape, Where

DOMAINS = 'plain', 'inverted', 'coloured', 'blurred', 'rotated'


def peek(where: Where) -> Shape:
  """Return image shape, number of classes and of domains."""
  return Shape((8, 8, 3), 10, num_clients=len(DOMAINS))


def load(where: Where) -> Dataset:
  """Return the digits of all domains, in the order of DOMAINS."""
  train, test = digits.load(where)[1:3]
  domain = np.zeros(len(train.y), int)
  for label in range(10):  # every fifth digit of a class is of one domain
    rows = np.flatnonzero(train.y == label)
    domain[rows] = np.arange(len(rows)) % len(DOMAINS)
  colours = np.random.default_rng(0)
  sides = []
  for split, is_train in ((train, True), (test, False)):
    of_each = [
      domain == at if is_train else slice(None) for at in range(len(DOMAINS))
    ]
    sides.append(
      [
        Images(_shifted(name, split.x[rows], colours), split.y[rows])
        for name, rows in zip(DOMAINS, of_each, strict=True)
      ]
    )
  *splits, clients = images.joined(*sides)
  dataset = images.make_dataset('digits_domains', *splits, num_classes=10)
  return dataset._replace(clients=clients)


def _shifted(name: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Return images [n, 8, 8, 3] of a domain, of grey ones [n, 8, 8, 1]."""
  if name == 'inverted':
    x = 255 - x
  elif name == 'coloured':
    ink = rng.integers(128, 256, (len(x), 1, 1, 3))
    ground = rng.integers(0, 128, (len(x), 1, 1, 3))
    x = np.round(ground + (ink - ground) * (x / 255)).astype(np.uint8)
  elif name == 'blurred':
    padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    ends = [(i, j) for i in range(3) for j in range(3)]
    shifts = [padded[:, i : i + 8, j : j + 8] for i, j in ends]
    x = np.round(np.mean(shifts, 0)).astype(np.uint8)
  elif name == 'rotated':
    x = np.rot90(x, axes=(1, 2))
  return np.broadcast_to(x, (*x.shape[:3], 3))
