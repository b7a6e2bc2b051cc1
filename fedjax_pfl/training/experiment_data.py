"""The data of an experiment: its images, partitioned among the clients."""

from collections.abc import Callable

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.core.user_code import is_code, value_of
from fedjax_pfl.data import (
  PARTITIONS,
  Dataset,
  Images,
  describe,
  describe_empty_clients,
  find_recipe,
  fingerprint,
  load_dataset,
  partition,
  scale_images,
  stack_clients,
)
from fedjax_pfl.data.validation_split import hold_out
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.experiment_checks import (
  check_batches,
  check_global_tests,
)

Log = Callable[[str], None]
Rows = list  # K arrays of indices into the images


def build_data(
  settings: Settings, log: Log
) -> tuple[Dataset, ClientData, ClientData, ClientData | None, str]:
  """Return (dataset, train, test, validation, fingerprint).

  `validation` is None without `validation_fraction`.
  """
  dataset = load_images(settings, log)
  check_batches(settings, len(dataset.train.y))
  check_global_tests(settings, dataset)
  indices = divide(settings, dataset)
  placement = settings.system.clients_placement
  train = stack_clients(dataset.train, indices[0], placement)
  held_out = Images(train.x, train.y)  # which are on the device already
  pool, testing = dataset.test, 'testing'
  if settings.data.test_partition == 'split':
    pool, testing = held_out, 'testing, on held-out training images'
  test = stack_clients(pool, indices[1], placement)
  splits, validation = {'training': train, testing: test}, None
  if len(indices) > 2:
    validation = stack_clients(held_out, indices[2], placement)
    splits['validation'] = validation
  for (split, data), rows in zip(splits.items(), indices, strict=True):
    log(
      f'{dataset.name}, {split}: {describe(data)}; partition '
      f'{fingerprint(rows)}'
    )
  if note := describe_empty_clients(train, test):
    log(note)
  return dataset, train, test, validation, identify(dataset, indices)


def load_images(settings: Settings, log: Log) -> Dataset:
  """Return the images of a config, in its number and size."""
  dataset = load_dataset(
    settings.data.dataset,
    data_dir=settings.data.data_dir,
    fallback_to_synthetic=settings.system.quick,
    log_fn=log,
  )
  if dataset.note:
    log(dataset.note)
  dataset = first_examples(dataset, settings.data.max_train_examples)
  recipe = find_recipe(settings.data.dataset, settings.data.preprocessing)
  return scale_images(dataset, recipe.side)


def divide(settings: Settings, dataset: Dataset) -> tuple[Rows, ...]:
  """Return the rows of every client for training, and those for testing.

  With `validation_fraction` also those for validation: less for training.
  """
  data = settings.data
  kind, names = data.partition, ()
  if is_code(kind):
    kind = _function_of(kind)
  else:
    names = PARTITIONS[kind]._fields
  train, test = partition(
    kind,
    dataset.train.y,
    dataset.test.y,
    num_clients=data.num_clients,
    num_classes=dataset.num_classes,
    test_partition=data.test_partition,
    test_shards_per_client=data.test_shards_per_client,
    test_fraction=data.test_fraction,
    seed=settings.seed,
    clients=dataset.clients,
    **{name: getattr(data, name) for name in names},
  )
  if not data.validation_fraction:
    return train, test
  train, validation = hold_out(train, data.validation_fraction, settings.seed)
  return train, test, validation


def _function_of(name: str) -> Callable:
  """Return the user's partition; refuse what is no function."""
  code = value_of('partition', name)
  if callable(code):
    return code
  raise bad_input(
    'partition',
    got=type(code).__name__,
    expected='a function (labels, num_clients, rng) -> rows of every client',
    cause='the name of something else in that file',
  )


def identify(dataset: Dataset, indices: tuple[Rows, ...]) -> str:
  """Return the fingerprint of the images and of their partition."""
  rows = [own for split in indices for own in split]
  return f'{dataset.fingerprint}-{fingerprint(rows)}'


def first_examples(dataset: Dataset, limit: int) -> Dataset:
  """Return the first `limit` training images, and as large a part of tests.

  Where the data say who holds an image, as large a part of each client's.
  """
  size = len(dataset.train.y)
  if not 0 < limit < size:
    return dataset
  share = limit / size
  if dataset.clients:
    rows = [_first_of_each(owners, share) for owners in dataset.clients]
    clients = tuple(
      owners[own] for owners, own in zip(dataset.clients, rows, strict=True)
    )
  else:
    num_tests = max(dataset.num_classes, round(share * len(dataset.test.y)))
    rows, clients = [slice(limit), slice(num_tests)], None
  train, test = (
    Images(images.x[own], images.y[own])
    for images, own in zip((dataset.train, dataset.test), rows, strict=True)
  )
  return dataset._replace(train=train, test=test, clients=clients)


def _first_of_each(owners: np.ndarray, share: float) -> np.ndarray:
  """Return whether a row is in the first `share` of its client's, rounded up.

  Rounded up: every client keeps an example.
  """
  order = np.argsort(owners, kind='stable')
  _, first, client, count = np.unique(
    owners[order], return_index=True, return_inverse=True, return_counts=True
  )
  place = np.arange(len(owners)) - first[client]  # within the client
  is_kept = np.empty(len(owners), bool)
  is_kept[order] = place < np.ceil(share * count[client])
  return is_kept
