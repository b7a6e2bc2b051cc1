"""The experiment of a config whose images may not be on this machine.

As `training/build.py` makes it; what `init_from` names is not read, since its
model has the same shapes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import Dataset, Images, Shape, is_available
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.models.outline import outline
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import build_checks
from fedjax_pfl.training.build import (
  Experiment,
  build_stages,
  build_task,
  peek_shape,
)
from fedjax_pfl.training.build_data import build_data, first_examples

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


def make_plan(config: Mapping[str, Any]) -> Experiment:
  """Return the experiment of a config, checked as a run checks it."""
  settings = parse_config(config)
  if settings.system.clients_placement != 'device':
    raise bad_input(
      'clients_placement',
      got=settings.system.clients_placement,
      expected='clients on the device',
      choices=['--config.clients_placement=device'],
      cause='a config for more clients than fit; their rounds get rows from '
      'the host, which is not compiled here',
    )
  data, shape = settings.data, peek_shape(settings)
  task = build_task(settings, *shape)
  stages = build_stages(settings, task)
  names_only = build_stages(settings, outline(task))
  build_checks.check_method(settings, names_only, shape.image_shape)
  dataset = None
  if not is_available(data.dataset, data.data_dir):
    dataset = stand_in(data.dataset, shape)
    dataset = first_examples(dataset, data.max_train_examples)
  found = build_data(settings, lambda text: None, dataset)
  size = cohort_size(data.num_seen_clients, settings.training.client_fraction)
  return Experiment(settings, *found, task, stages, size)


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
