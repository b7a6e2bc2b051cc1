"""The data of an experiment: its images, partitioned among the clients."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.core.user_code import is_code, value_of
from fedjax_pfl.data import (
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
from fedjax_pfl.data.held_out import hold_out, order_clients
from fedjax_pfl.data.images import digest
from fedjax_pfl.data.partition import settings_of
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_checks import (
  check_batches,
  check_global_tests,
)

Log = Callable[[str], None]
Rows = list  # for each client an array of indices into the images
DataOf = Callable[[Settings], str]  # settings -> fingerprint of the data


class Division(NamedTuple):
  """Whose the images are: the rows of every client.

  The first three are of the clients that take part in rounds.
  """

  train: Rows
  test: Rows
  validation: Rows | None = None
  unseen_train: Rows | None = None
  unseen_test: Rows | None = None


class UnseenClients(NamedTuple):
  """The examples of the U clients who come later; images are shared."""

  train: ClientData  # index [U, N]
  test: ClientData


class ExperimentData(NamedTuple):
  """The data of an experiment; the unseen clients are in `unseen` alone."""

  dataset: Dataset
  train: ClientData
  test: ClientData
  validation: ClientData | None  # without `validation_fraction`
  unseen: UnseenClients | None  # without `unseen_clients`
  data_id: str  # fingerprint of images and partition


def build_data(
  settings: Settings, log: Log, dataset: Dataset | None = None
) -> ExperimentData:
  """Return the images of a config, partitioned among its clients.

  A `dataset` stands in for images that are not on this machine.
  """
  dataset = dataset or load_images(settings, log)
  check_batches(settings, len(dataset.train.y))
  check_global_tests(settings, dataset)
  division = divide(settings, dataset)
  tables = _stack(settings, dataset, division)
  for name, data, rows in zip(_names(settings), tables, division, strict=True):
    if data is not None:
      log(
        f'{dataset.name}, {name}: {describe(data)}; partition '
        f'{fingerprint(rows)}'
      )
  train, test, validation, *unseen = tables
  unseen = UnseenClients(*unseen) if settings.data.unseen_clients else None
  for pair in filter(None, [(train, test), unseen]):
    if note := describe_empty_clients(*pair):
      log(note)
  data_id = identify(dataset, division)
  return ExperimentData(dataset, train, test, validation, unseen, data_id)


def _stack(
  settings: Settings, dataset: Dataset, division: Division
) -> list[ClientData | None]:
  """Return the clients of every part of the division, on two sets of images."""
  placement = settings.system.clients_placement
  train = stack_clients(dataset.train, division.train, placement)
  of_train = Images(train.x, train.y)  # which are on the device already
  pool = dataset.test
  if settings.data.test_partition == 'split':
    pool = of_train
  test = stack_clients(pool, division.test, placement)
  pools = of_train, of_train, Images(test.x, test.y)
  more = [
    None if rows is None else stack_clients(images, rows, placement)
    for images, rows in zip(pools, division[2:], strict=True)
  ]
  return [train, test, *more]


def _names(settings: Settings) -> tuple[str, ...]:
  """Return the names of the parts of a division in the log."""
  testing = 'testing'
  if settings.data.test_partition == 'split':
    testing = 'testing, on held-out training examples'
  return (
    *('training', testing, 'validation'),
    *('training of unseen clients', 'testing of unseen clients'),
  )


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


def divide(settings: Settings, dataset: Dataset) -> Division:
  """Return the rows of every client for training, and those for testing.

  With `validation_fraction` also those for validation: less for training. With
  `unseen_clients` those are apart; what they would validate on is not used.
  """
  data = settings.data
  kind, names = data.partition, ()
  if is_code(kind):
    kind = _function_of(kind)
  else:
    names = settings_of(kind)
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
  if data.unseen_clients:
    order = order_clients(data.num_clients, data.unseen_clients, settings.seed)
    train, test = ([rows[client] for client in order] for rows in (train, test))
  validation = None
  if data.validation_fraction:
    train, validation = hold_out(train, data.validation_fraction, settings.seed)
  if not data.unseen_clients:
    return Division(train, test, validation)
  number = data.num_seen_clients
  return Division(
    train[:number],
    test[:number],
    validation and validation[:number],
    train[number:],
    test[number:],
  )


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


def identify(dataset: Dataset, division: Division) -> str:
  """Return the fingerprint of the images and of their partition."""
  rows = [own for split in division if split is not None for own in split]
  return f'{dataset.fingerprint}-{fingerprint(rows)}'


def first_examples(dataset: Dataset, limit: int) -> Dataset:
  """Return the first `limit` training images, and as large a part of tests.

  Where the data say who holds an image, as large a part of each client's. Of a
  set whose training or test images lie class by class, as large a part of each
  class: its first images would be of the first classes only. Parts are rounded
  up, so that there may be a few more images than `limit`.
  """
  size = len(dataset.train.y)
  if not 0 < limit < size:
    return dataset
  share = limit / size
  both = dataset.train, dataset.test
  labels = tuple(images.y for images in both)
  clients, is_sorted = dataset.clients, any(map(_lies_by_class, labels))
  if clients or is_sorted:
    rows = [_first_of_each(owners, share) for owners in clients or labels]
  else:
    num_tests = max(dataset.num_classes, round(share * len(dataset.test.y)))
    rows = [slice(limit), slice(num_tests)]
  train, test = (
    Images(images.x[own], images.y[own])
    for images, own in zip(both, rows, strict=True)
  )
  if clients:
    clients = tuple(
      owners[own] for owners, own in zip(clients, rows, strict=True)
    )
    return dataset._replace(train=train, test=test, clients=clients)
  cut = dataset._replace(train=train, test=test)
  # The rows alone may equal those of the first images: other data, other keys.
  return cut._replace(fingerprint=digest(*train, *test)) if is_sorted else cut


def _lies_by_class(labels: np.ndarray) -> bool:
  """Return whether each class is one block, as in folders of image files.

  Not of one class, nor where no class has two images.
  """
  num_classes = len(np.unique(labels))
  num_blocks = 1 + np.count_nonzero(np.diff(labels))
  return 1 < num_classes == num_blocks < len(labels)


def _first_of_each(owners: np.ndarray, share: float) -> np.ndarray:
  """Return whether a row is in the first `share` of its owner's, rounded up.

  Rounded up: every owner, a client or a class, keeps an example.
  """
  order = np.argsort(owners, kind='stable')
  _, first, owner, count = np.unique(
    owners[order], return_index=True, return_inverse=True, return_counts=True
  )
  place = np.arange(len(owners)) - first[owner]  # within the owner's
  is_kept = np.empty(len(owners), bool)
  is_kept[order] = place < np.ceil(share * count[owner])
  return is_kept


def make_data_of(log: Callable[[str], None]) -> DataOf:
  """Return settings -> the fingerprint of the data that a run would have.

  An image set is read once, and each partition of it drawn once.
  """
  datasets, fingerprints = {}, {}

  def data_of(settings: Settings) -> str:
    data, quick = settings.data, settings.system.quick
    images = (
      *(data.dataset, data.data_dir, data.max_train_examples),
      *(data.preprocessing, quick),
    )
    division = (data, quick, settings.seed)
    if division not in fingerprints:
      if images not in datasets:
        datasets[images] = load_images(settings, log)
      dataset = datasets[images]
      fingerprints[division] = identify(dataset, divide(settings, dataset))
    return fingerprints[division]

  return data_of
