"""A million clients on disk, with a small model, in minutes.

  fedjax-pfl train --config=million:ditto --workdir=runs/million

The first start makes the clients (0.8 GB below $TFDS_DATA_DIR, or else
~/tensorflow_datasets; some minutes): ten images of 8 x 8 for training and two
for testing, of two of ten classes each. A round trains 50 of them; 10,000 drawn
ones are evaluated at the end. What clients keep is on disk, too: a linear model
for each who has trained, as in Ditto, of 2.6 kB. See docs/explain/scale.md.
"""

from collections.abc import Iterator

import numpy as np

from configs import common
from configs.methods import METHODS
from fedjax_pfl.core import progress
from fedjax_pfl.data.clients_folder import write_clients
from fedjax_pfl.data.stored_arrays import data_root

OWN_DATA = True
NUM_CLIENTS = 1_000_000
COHORT, TRAIN, TEST, SIDE, CLASSES = 50, 10, 2, 8, 10
BLOCK = 1000  # clients that are drawn together
MADE = {
  'dataset': 'clients',
  'model': 'linear',
  'partition': 'natural',
  'num_clients': 0,
  'rounds': 10,
  'local_epochs': 1,
  'batch_size': TRAIN,
  'learning_rate': 0.05,
  'eval_every': 10,
  'eval_clients': 10_000,
  'clients_placement': 'disk',
}
# A linear model has no body that clients could share without their heads.
EXPERIMENTS = (
  *('apfl', 'ditto', 'fedavg', 'feddyn', 'fedprox', 'per_fedavg', 'pfedme'),
  'scaffold',
)


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='ditto')
  made = METHODS.get(method, {}) | MADE
  made |= {'data_dir': make(), 'client_fraction': COHORT / NUM_CLIENTS}
  return common.base(arg, algorithm=method, **made)


def make() -> str:
  """Return the folder of the clients, which is made if it is not there."""
  folder = data_root() / f'made_clients_{NUM_CLIENTS}'
  if not folder.exists():
    size = NUM_CLIENTS * (TRAIN + TEST) * (SIDE * SIDE + 4) / 1e9
    progress.log(
      f'Making {NUM_CLIENTS:,} clients in {folder}: {size:.1f} GB of disk.'
    )
    write_clients(folder, clients(NUM_CLIENTS), num_classes=CLASSES)
  return str(folder)


def clients(number: int) -> Iterator[tuple[np.ndarray, ...]]:
  """Yield (x, y, test_x, test_y): images of two classes in much noise."""
  rng, size = np.random.default_rng(0), TRAIN + TEST
  templates = rng.integers(0, 80, (CLASSES, SIDE, SIDE, 1), np.uint8)
  for first in range(0, number, BLOCK):
    block = min(BLOCK, number - first)
    held = rng.integers(0, CLASSES, (block, 2))
    which = rng.integers(0, 2, (block, size))
    y = np.take_along_axis(held, which, 1).astype(np.int32)
    x = rng.integers(0, 176, (block, size, SIDE, SIDE, 1), np.uint8)
    x += templates[y]
    for own_x, own_y in zip(x, y, strict=True):
      yield own_x[:TRAIN], own_y[:TRAIN], own_x[TRAIN:], own_y[TRAIN:]
