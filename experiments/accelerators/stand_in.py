"""Images that nobody reads: a program depends on their number and shape alone.

Where a data set is not prepared, its published number of examples is known, and
its labels are taken as balanced, in a random order. Partitions that depend on
them then divide the examples a little otherwise than the real ones.
"""

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import Dataset, Images, Shape

# (training, test) examples, as tensorflow.org/datasets/catalog lists them; Tiny
# ImageNet is tested on its validation images.
SIZES = {
  'digits': (1442, 355),
  'cifar10': (50_000, 10_000),
  'cifar100': (50_000, 10_000),
  'emnist/byclass': (697_932, 116_323),
  'mnist': (60_000, 10_000),
  'fashion_mnist': (60_000, 10_000),
  'svhn_cropped': (73_257, 26_032),
  'tiny_imagenet': (100_000, 10_000),
}


def stand_in(name: str, shape: Shape) -> Dataset:
  """Return a data set of this name without its images.

  >>> stand_in('cifar10', Shape((32, 32, 3), 10)).train.x.nbytes
  153600000

  which take no memory: all are one byte.
  """
  if name not in SIZES:
    raise bad_input(
      'dataset',
      got=name,
      expected='a data set whose number of examples is known',
      choices=SIZES,
      cause='a folder of images that is not there',
    )
  rng = np.random.default_rng(0)
  note = f'{name} is not prepared: {SIZES[name]} balanced labels stand in.'
  train, test = (_split(size, shape, rng) for size in SIZES[name])
  return Dataset(name, train, test, shape.num_classes, '', note)


def _split(size: int, shape: Shape, rng: np.random.Generator) -> Images:
  x = np.broadcast_to(np.uint8(0), (size, *shape.image_shape))
  y = rng.permutation(np.arange(size) % shape.num_classes)
  return Images(x, y.astype(np.int32))
