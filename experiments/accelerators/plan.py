"""From a config to what its programs are made of, on shapes alone.

As `training/build.py` does it, but nothing is computed and no image is
kept: the partition needs labels, the programs shapes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.accelerators.targets import Where
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.core.types import ClientData, Task
from fedjax_pfl.data import Dataset, Images, Shape, is_available
from fedjax_pfl.data.held_out import halves
from fedjax_pfl.data.image_pool import pool_of
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.models.outline import outline
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training.build import build_stages, build_task, peek_shape
from fedjax_pfl.training.build_checks import check_batches
from fedjax_pfl.training.build_data import divide, first_examples, load_images
from fedjax_pfl.training.views import check_views

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


class Plan(NamedTuple):
  """What a run would compile; images and labels are shapes."""

  settings: Settings
  task: Task
  stages: tuple[Stage, ...]
  train: ClientData  # index and count are numpy arrays
  support: ClientData  # what clients adapt on
  query: ClientData  # what they are evaluated on
  cohort: int
  notes: tuple[str, ...]


def plan_for(where: Where, config: Mapping[str, Any]) -> Plan:
  """Return the plan of a config, traced for the devices."""
  _ = where.devices  # refuses what is not there
  with compiling_for(where.kind, where.device.memory):
    return make_plan(config)


def make_plan(config: Mapping[str, Any]) -> Plan:
  """Return the plan of a config, checked as a run checks it."""
  settings = parse_config(config)
  _check_placement(settings)
  shape = peek_shape(settings)
  task = build_task(settings, *shape)
  stages = build_stages(settings, task)
  names_only = build_stages(settings, outline(task))
  check_views(settings, names_only, shape.image_shape)
  dataset = _dataset(settings, shape)
  check_batches(settings, len(dataset.train.y))
  train_rows, test_rows, *_ = divide(settings, dataset)
  own_tests = settings.data.test_partition == 'split'
  train = _stack(dataset.train, train_rows)
  test = _stack(dataset.train if own_tests else dataset.test, test_rows)
  adapts_on_tests = settings.evaluation.adapt_on == 'test_half'
  support, query = halves(test) if adapts_on_tests else (train, test)
  size = cohort_size(
    settings.data.num_seen_clients, settings.training.client_fraction
  )
  notes = [dataset.note] if dataset.note else []
  if settings.init_from:
    notes.append('init_from is not read: its model has the same shapes.')
  return Plan(settings, task, stages, train, support, query, size, (*notes,))


def _dataset(settings: Settings, shape: Shape) -> Dataset:
  data = settings.data
  if is_available(data.dataset, data.data_dir):
    return load_images(settings, lambda text: None)
  return first_examples(stand_in(data.dataset, shape), data.max_train_examples)


def _stack(images: Images, rows: list[np.ndarray]) -> ClientData:
  """Return clients as `stack_clients` does, with shapes for the images."""
  count = np.array([len(own) for own in rows], np.int32)
  index = np.zeros((len(rows), max(1, count.max())), np.int32)  # [K, N]
  pool = jax.ShapeDtypeStruct(images.x.shape, images.x.dtype)
  # A function of its own: jax would find the trace for another target.
  pool = jax.eval_shape(lambda images: pool_of(images), pool)
  labels = jax.ShapeDtypeStruct(images.y.shape, np.int32)
  return ClientData(pool, labels, index, count)


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


def _check_placement(settings: Settings) -> None:
  if settings.system.clients_placement != 'device':
    raise bad_input(
      'clients_placement',
      got=settings.system.clients_placement,
      expected='clients on the device',
      choices=['--config.clients_placement=device'],
      cause='a config for more clients than fit; their rounds get rows from '
      'the host, which is not compiled here',
    )
