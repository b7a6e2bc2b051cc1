"""Names of the classes of the image sets, and groups of classes.

CIFAR-100's 100 fine classes are numbered in the order of the alphabet, its 20
coarse classes as in the list below (Krizhevsky 2009).
"""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.core.errors import bad_input

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
  coarse = np.zeros(len(CIFAR100), int)
  for number, fine in enumerate(COARSE.values()):
    coarse[[CIFAR100.index(name) for name in fine.split()]] = number
  return coarse


def choose_classes(
  words: Sequence[str], dataset: str, num_classes: int
) -> list[int]:
  """Return the numbers of classes given by name or number; () means all.

  The single word 'vehicles' is Figure 16's choice.
  """
  names = class_names(dataset, num_classes)
  if tuple(words) == ('vehicles',) and dataset in VEHICLES:
    words = VEHICLES[dataset]
  chosen = []
  for word in words:
    if word in names:
      chosen.append(names.index(word))
    elif word.isdecimal() and int(word) < num_classes:
      chosen.append(int(word))
    else:
      raise bad_input(
        'classes',
        got=word,
        expected=f'names or numbers of classes of {dataset}',
        choices=[*(['vehicles'] if dataset in VEHICLES else []), *names],
        cause='classes of another data set, or a typing error',
      )
  return chosen or list(range(num_classes))


def group_classes(
  group: str, dataset: str, num_classes: int
) -> tuple[np.ndarray, tuple[str, ...]]:
  """Return the group of every class [Y], and the names of the groups.

  'fine' means every class by itself; 'coarse' CIFAR-100's 20 coarse ones.
  """
  if group == 'fine':
    return np.arange(num_classes), class_names(dataset, num_classes)
  if group == 'coarse' and dataset == 'cifar100':
    return coarse_of_fine(), tuple(COARSE)
  raise bad_input(
    'colours',
    got=f'{group} on {dataset}',
    expected='fine, or coarse on cifar100',
    choices=['fine', *(['coarse'] if dataset == 'cifar100' else [])],
    cause='a typing error, or a data set without coarse classes',
  )
