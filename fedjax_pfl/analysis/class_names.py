"""Names of the classes of the image sets, and groups of classes.

CIFAR-100's 100 fine classes are numbered in the order of the alphabet, its 20
coarse classes as in the list below (Krizhevsky 2009).
"""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.core.errors import check_known

CIFAR10 = (
  *('airplane', 'automobile', 'bird', 'cat', 'deer'),
  *('dog', 'frog', 'horse', 'ship', 'truck'),
)
COARSE = {
  'aquatic mammals': 'beaver dolphin otter seal whale',
  'fish': 'aquarium_fish flatfish ray shark trout',
  'flowers': 'orchid poppy rose sunflower tulip',
  'food containers': 'bottle bowl can cup plate',
  'fruit and vegetables': 'apple mushroom orange pear sweet_pepper',
  'household electrical devices': 'clock keyboard lamp telephone television',
  'household furniture': 'bed chair couch table wardrobe',
  'insects': 'bee beetle butterfly caterpillar cockroach',
  'large carnivores': 'bear leopard lion tiger wolf',
  'large man-made outdoor things': 'bridge castle house road skyscraper',
  'large natural outdoor scenes': 'cloud forest mountain plain sea',
  'large omnivores and herbivores': 'camel cattle chimpanzee elephant kangaroo',
  'medium-sized mammals': 'fox porcupine possum raccoon skunk',
  'non-insect invertebrates': 'crab lobster snail spider worm',
  'people': 'baby boy girl man woman',
  'reptiles': 'crocodile dinosaur lizard snake turtle',
  'small mammals': 'hamster mouse rabbit shrew squirrel',
  'trees': 'maple_tree oak_tree palm_tree pine_tree willow_tree',
  'vehicles 1': 'bicycle bus motorcycle pickup_truck train',
  'vehicles 2': 'lawn_mower rocket streetcar tank tractor',
}
CIFAR100 = tuple(sorted(' '.join(COARSE.values()).split()))

NAMES = {'cifar10': CIFAR10, 'cifar100': CIFAR100}
VEHICLES = {  # FedBABU, Figure 16
  'cifar10': ('airplane', 'automobile', 'ship', 'truck'),
  'cifar100': tuple(f'{COARSE["vehicles 1"]} {COARSE["vehicles 2"]}'.split()),
}


def class_names(dataset: str, num_classes: int) -> tuple[str, ...]:
  """Return the names of the classes; numbers for other data sets."""
  return NAMES.get(dataset, tuple(map(str, range(num_classes))))


def coarse_of_fine() -> np.ndarray:
  """Return the coarse class of every fine class of CIFAR-100: [100]."""
  groups = [fine.split() for fine in COARSE.values()]
  return np.array(
    [[name in group for group in groups].index(True) for name in CIFAR100]
  )


def choose_classes(
  words: Sequence[str], dataset: str, num_classes: int
) -> list[int]:
  """Return the numbers of classes given by name or number; () means all.

  The single word 'vehicles' is Figure 16's choice.
  """
  names = class_names(dataset, num_classes)
  numbers = {name: at for at, name in enumerate(names)}
  numbers |= {str(at): at for at in range(num_classes)}
  groups = ['vehicles'] if dataset in VEHICLES else []
  if list(words) == groups:
    words = VEHICLES.get(dataset, ())
  check_known(
    'classes',
    words,
    expected=f'names or numbers of classes of {dataset}',
    choices=dict.fromkeys([*groups, *names, *numbers]),
    cause='classes of another data set, or a typing error',
  )
  return [numbers[word] for word in words] or list(range(num_classes))


def group_classes(
  group: str, dataset: str, num_classes: int
) -> tuple[np.ndarray, tuple[str, ...]]:
  """Return the group of every class [Y], and the names of the groups.

  'fine' means every class by itself; 'coarse' CIFAR-100's 20 coarse ones.
  """
  groups = {'fine': (np.arange(num_classes), class_names(dataset, num_classes))}
  if dataset == 'cifar100':
    groups['coarse'] = coarse_of_fine(), tuple(COARSE)
  check_known(
    'colours',
    [group],
    expected=f'fine, or coarse on cifar100, for {dataset}',
    choices=groups,
    cause='a typing error, or a data set without coarse classes',
  )
  return groups[group]
