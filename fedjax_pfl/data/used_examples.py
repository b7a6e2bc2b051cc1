"""The examples of a config that are used: the first ones, merged, thinned.

Thinned, classes have falling sizes (a long tail), before any partition:

  n_c = max(1, floor(n_max r^(-c / (Y - 1)))),  at most |c|,  c = 0 .. Y - 1

r is the imbalance factor, n_max the largest class (Cui et al. 2019). The first
n_c training examples of class c stay, in stored order: nothing is drawn. The
test set keeps all its examples; tests that are split from the training examples
have the long tail, too.
"""

import math
from fractions import Fraction

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.datasets import OWN
from fedjax_pfl.data.fields import DataSettings
from fedjax_pfl.data.images import Dataset, Images, make_dataset

ROUNDING = 1e-9  # 100 * 10 ** -1 is below 10


def examples_of(data: DataSettings, dataset: Dataset) -> Dataset:
  """Return the examples that are used; merged, all are for training."""
  dataset = first_examples(dataset, data.max_train_examples)
  if data.test_partition != 'merged':
    return thinned(dataset, data.imbalance_factor)
  train, test = dataset.train, dataset.test
  both = Images(*map(np.concatenate, zip(train, test, strict=True)))
  clients = dataset.clients
  if clients:
    clients = np.concatenate(clients), clients[1][:0]
  nothing = Images(test.x[:0], test.y[:0])
  merged = dataset._replace(train=both, test=nothing, clients=clients)
  return thinned(merged, data.imbalance_factor)


def first_examples(dataset: Dataset, limit: int) -> Dataset:
  """Return the first `limit` training images, and as large a part of tests.

  Where the data say who holds an image, as large a part of each client's. Of a
  set whose training or test images lie class by class, as large a part of each
  class: its first images would be of the first classes only; so of a client of
  the user's own data whose images do. Parts are rounded up, so that there may
  be a few more images than `limit`.
  """
  size, is_own = len(dataset.train.y), dataset.name in OWN
  if not 0 < limit < size:
    return dataset
  both, clients = (dataset.train, dataset.test), dataset.clients
  labels, part = [images.y for images in both], Fraction(limit, size)
  is_sorted = any(map(_lies_by_class, labels))
  if clients:  # of prepared sets runs are stored
    blocks = labels if is_own else (None, None)
    rows = [*map(_first_of_each, [part, part], clients, blocks)]
  elif is_sorted:
    rows = [_first_of_each(part, own) for own in labels]
  else:
    num_tests = round(limit / size * len(dataset.test.y))
    rows = slice(limit), slice(max(dataset.num_classes, num_tests))
  train, test = (
    Images(images.x[own], images.y[own])
    for images, own in zip(both, rows, strict=True)
  )
  cut = dataset._replace(train=train, test=test)
  if clients:
    owners = zip(clients, rows, strict=True)
    cut = cut._replace(clients=tuple(whose[own] for whose, own in owners))
  # Of a prepared set the clients are always the same.
  if not (is_own if clients else is_sorted):
    return cut
  # The rows alone may equal those of the first images: other data, other keys.
  new = make_dataset(dataset.name, train, test, dataset.num_classes)
  return cut._replace(fingerprint=new.fingerprint)


def _lies_by_class(labels: np.ndarray) -> bool:
  """Return whether each of several classes is one block, as in folders."""
  if labels.ndim > 1:
    return False
  num_classes = len(np.unique(labels))
  num_blocks = 1 + np.count_nonzero(np.diff(labels))
  return 1 < num_classes == num_blocks < len(labels)


def _first_of_each(
  part: Fraction, owners: np.ndarray, labels: np.ndarray | None = None
) -> np.ndarray:
  """Return whether a row is in the first part of its owner's.

  Rounded up: every owner, a client or a class, keeps an example. With labels an
  owner whose classes lie in blocks gives one of each, then as large a part.
  """
  is_kept = np.zeros(len(owners), bool)
  for rows in _rows_of_each(owners):
    if labels is not None and _lies_by_class(labels[rows]):
      blocks = _rows_of_each(labels[rows])
      turns = np.concatenate([np.arange(len(b)) / len(b) for b in blocks])
      rows = rows[np.concatenate(blocks)[np.argsort(turns, kind='stable')]]
    is_kept[rows[: math.ceil(part * len(rows))]] = True
  return is_kept


def _rows_of_each(kinds: np.ndarray) -> list[np.ndarray]:
  """Return the rows of every kind, a client or a class, in their order."""
  order = np.argsort(kinds, kind='stable')
  _, firsts = np.unique(kinds[order], return_index=True)
  return np.split(order, firsts[1:])


def sizes(counts: np.ndarray, factor: float) -> np.ndarray:
  """Return n_c of classes with these counts.

  >>> sizes(np.full(3, 500), 100).tolist()
  [500, 50, 5]
  """
  places = np.arange(len(counts)) / max(1, len(counts) - 1)
  wanted = np.floor(counts.max() * factor**-places + ROUNDING).astype(int)
  return np.minimum(np.maximum(wanted, 1), counts)


def thinned(dataset: Dataset, factor: float) -> Dataset:
  """Return the set with a long tail of training examples; 1 changes nothing."""
  if factor == 1:
    return dataset
  (x, y), clients = dataset.train, dataset.clients
  if y.ndim > 1:
    raise bad_input(
      'imbalance_factor',
      got=factor,
      expected=f'1 for {dataset.name}, whose examples have no single class',
    )
  counts = np.bincount(y, minlength=dataset.num_classes)
  kept = np.zeros(len(y), bool)
  for label, size in enumerate(sizes(counts, factor)):
    kept[np.flatnonzero(y == label)[:size]] = True
  train = Images(x[kept], y[kept])
  made = make_dataset(dataset.name, train, dataset.test, dataset.num_classes)
  if clients:
    clients = clients[0][kept], clients[1]
  return made._replace(note=dataset.note, clients=clients)
