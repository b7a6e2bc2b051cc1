"""The images of an outline, which may not be here.

Blank images of the same number, with balanced labels, stand in for a set that
is not prepared: no time, no memory and no program depends on their content.
"""

import numpy as np

from fedjax_pfl.core.rules import one_of
from fedjax_pfl.data.datasets import is_available
from fedjax_pfl.data.dealing import Log, load_images
from fedjax_pfl.data.images import Dataset, Images, Shape
from fedjax_pfl.data.prepared import NUM_EXAMPLES
from fedjax_pfl.data.used_examples import examples_of
from fedjax_pfl.training.outline import Outline

SIZES = {'digits': (1442, 355), **NUM_EXAMPLES}  # training, test


def images_of(outline: Outline, log: Log) -> Dataset:
  """Return the images of a config, or what stands in for them."""
  data, is_quick = outline.settings.data, outline.settings.system.quick
  if is_available(data.dataset, data.data_dir):
    return load_images(data, is_quick, log)
  return examples_of(data, stand_in(data.dataset, outline.shape))


def stand_in(name: str, shape: Shape) -> Dataset:
  """Return a data set of this name without its images.

  >>> stand_in('cifar10', Shape((32, 32, 3), 10)).train.x.nbytes
  153600000

  which take no memory: all are one byte.
  """
  one_of(
    SIZES,
    'a data set whose number of examples is known',
    'a folder of images, or a text, that is not there',
  ).check('dataset', name)
  rng, classes = np.random.default_rng(0), shape.num_classes
  note = f'{name} is not prepared: {SIZES[name]} balanced labels stand in.'
  train, test = (
    Images(
      np.broadcast_to(np.uint8(0), (size, *shape.image_shape)),
      rng.permutation(np.arange(size) % classes).astype(np.int32),
    )
    for size in SIZES[name]
  )
  return Dataset(name, train, test, classes, '', note)
