"""A folder of tiny images: four hospitals of unlike sizes, two classes."""

import numpy as np
from PIL import Image

HOSPITALS = [f'hospital{number}' for number in (1, 2, 3, 10)]
CLASSES = ['healthy', 'tumour']
CONFIG = {
  'dataset': 'folder',
  'model': 'convnet3',
  'partition': 'natural',
  'num_clients': 0,
  'unseen_clients': 'hospital2',
  'rounds': 1,
  'client_fraction': 1.0,
  'local_epochs': 1,
  'batch_size': 10,
  'views': ('initial',),
  'eval_views': (),
}


def write(root):
  """Return the folder, in which hospital n has 5 + n images of each class."""
  rng = np.random.default_rng(0)
  for hospital in HOSPITALS:
    for at, name in enumerate(CLASSES):
      (root / hospital / name).mkdir(parents=True)
      for image in range(5 + int(hospital[8:])):
        x = 100 * at + rng.integers(0, 99, (8, 8))
        file = root / hospital / name / f'{image}.png'
        Image.fromarray(x.astype(np.uint8)).save(file)
  return root
