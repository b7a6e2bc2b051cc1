"""Long tails: classes of falling size, before any partition deals them.

  n_c = max(1, floor(n_max r^(-c / (Y - 1)))),  at most |c|,  c = 0 .. Y - 1

r is the imbalance factor, n_max the largest class (Cui et al. 2019). The first
n_c training examples of class c stay, in stored order: nothing is drawn. The
test set keeps all its examples; tests that are split from the training examples
have the long tail, too.
"""

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.images import Dataset, Images, make_dataset

ROUNDING = 1e-9  # 100 * 10 ** -1 is below 10


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
      expected=f'1 for {dataset.name}, whose tokens have a label each',
      cause='the config of an image set',
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
