"""The data of an experiment: its images, partitioned among the clients."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.core.user_code import is_code, value_of
from fedjax_pfl.data import client_data, partition
from fedjax_pfl.data.datasets import OWN, load_dataset
from fedjax_pfl.data.held_out import hold_out, order_clients
from fedjax_pfl.data.images import Dataset, Images, make_dataset, scale_images
from fedjax_pfl.data.long_tail import thinned
from fedjax_pfl.data.transforms import find_recipe
from fedjax_pfl.settings import DataSettings, Settings
from fedjax_pfl.settings.schema import FIELDS
from fedjax_pfl.training.build_checks import check_data, check_scoring

Log = Callable[[str], None]
# Whose the images are, by part: for each client an array of rows of the images.
# The first three are of the clients that take part in rounds.
Division = dict[str, list]
WORDS = {
  'train': 'training',
  'test': 'testing',
  'validation': 'validation',
  'unseen_train': 'training of unseen clients',
  'unseen_test': 'testing of unseen clients',
}
WITHOUT_CLASSES = ('natural', 'iid')
SPLITS = 'train', 'test'
UNSEEN = 'unseen_'  # begins the names of splits of clients who come later
HELD_OUT = ', on held-out examples of their own'


class ExperimentData(NamedTuple):
  """The examples of an experiment, of one array of images for train and test.

  splits: 'train' and 'test' of the clients that take part in rounds;
  'validation' of their training examples, if some are kept for choosing;
  'unseen_train' and 'unseen_test' of clients who come later, if there are any.
  """

  dataset: Dataset
  splits: dict[str, ClientData]  # index [K, N], or of the U that come later
  data_id: str  # fingerprint of images and partition

  @property
  def train(self) -> ClientData:
    return self.splits['train']

  @property
  def test(self) -> ClientData:
    return self.splits['test']


def build_data(
  settings: Settings, log: Log, dataset: Dataset | None = None
) -> ExperimentData:
  """Return the images of a config, or a stand-in, dealt to its clients."""
  dataset = dataset or load_images(settings.data, settings.system.quick, log)
  check_data(settings, dataset)
  if idle := idle_fields(settings.data):
    log(f'partition={settings.data.partition} does not use {idle}.')
  division, splits = divide(settings.data, settings.seed, dataset), {}
  _check_training(settings.data, division['train'])
  pools = {'train': dataset.train, 'test': dataset.test}
  is_split = settings.data.test_partition in partition.OF_OWN
  for name, rows in division.items():
    side = 'test' if name.endswith('test') and not is_split else 'train'
    data = client_data.stack_clients(
      pools[side], rows, settings.system.clients_placement
    )
    # Others share these images, which are on the device now.
    pools[side], splits[name] = Images(data.x, data.y), data
    words = WORDS[name] + HELD_OUT * (is_split and name == 'test')
    log(
      f'{dataset.name}, {words}: {client_data.describe(data)}; partition '
      f'{partition.fingerprint(rows)}'
    )
  for test in [name for name in splits if name.endswith('test')]:
    train = f'{test.removesuffix("test")}train'
    if note := client_data.describe_empty_clients(splits[train], splits[test]):
      log(note)
    check_scoring(settings, splits[test])
  if fraction := settings.server_training.fraction:
    from fedjax_pfl.around import server_training

    size = len(dataset.train.y)
    rows = server_training.shared_rows(settings.seed, fraction, size)
    log(f'server: {len(rows):,} of the {size:,} training examples')
  return ExperimentData(dataset, splits, identify(dataset, division))


def load_images(data: DataSettings, quick: bool, log: Log) -> Dataset:
  """Return the images of a config, in its number and size."""
  dataset = load_dataset(
    data.dataset,
    data_dir=data.data_dir,
    fallback_to_synthetic=quick,
    log_fn=log,
    image_size=data.image_size,
  )
  if dataset.note:
    log(dataset.note)
  dataset = examples_of(data, dataset)
  recipe = find_recipe(data.dataset, data.preprocessing)
  return scale_images(dataset, data.image_size or recipe.side)


def examples_of(data: DataSettings, dataset: Dataset) -> Dataset:
  """Return the examples that are used; merged, all are for training."""
  dataset = first_examples(dataset, data.max_train_examples)
  if data.test_partition != 'merged':
    return thinned(dataset, data.imbalance_factor)
  train, test = dataset.train, dataset.test
  both = Images(*map(np.concatenate, zip(train, test, strict=True)))
  clients = dataset.clients
  if clients:
    clients = np.concatenate(clients), clients[1][:0]
  nothing = Images(test.x[:0], test.y[:0])
  merged = dataset._replace(train=both, test=nothing, clients=clients)
  return thinned(merged, data.imbalance_factor)


def idle_fields(data: DataSettings) -> str:
  """Return what is set of other partitions, for which it may be: 'a=5, b=1'."""
  known = {name: partition.settings_of(name) for name in partition.PARTITIONS}
  idle = {*chain(*known.values())} - {*known.get(data.partition, ())}
  if data.test_partition not in partition.OF_OWN:
    idle.add('test_fraction')
  return ', '.join(
    f'{name}={getattr(data, name)}'
    for name in sorted(idle)
    if getattr(data, name) != FIELDS[name].default
  )


def divide(data: DataSettings, seed: int, dataset: Dataset) -> Division:
  """Return the rows of every client for training, and those for testing.

  With `validation_fraction` also those for validation: less for training. With
  `unseen_clients` those are apart; what they would validate on is not used.
  """
  kind, names = data.partition, ()
  if is_code(kind):
    kind = value_of('partition', kind)
    words = 'a function (labels, num_clients, rng) -> rows of every client'
    Rule(callable, words).check('partition', kind)
  else:
    names = partition.settings_of(kind)
  labels = _labels_of(kind, data.test_partition, dataset)
  train, test = partition.partition(
    kind,
    *labels,
    num_clients=data.num_clients,
    num_classes=dataset.num_classes,
    test_partition=data.test_partition,
    test_shards_per_client=data.test_shards_per_client,
    test_fraction=data.test_fraction,
    seed=seed,
    clients=dataset.clients,
    **{name: getattr(data, name) for name in names},
  )
  if data.unseen_clients:
    order = order_clients(data.num_clients, data.unseen_clients, seed)
    train, test = ([rows[client] for client in order] for rows in (train, test))
  division = {'train': train, 'test': test}
  if data.validation_fraction:
    kept, held_out = hold_out(train, data.validation_fraction, seed)
    division |= {'train': kept, 'validation': held_out}
  if not data.unseen_clients:
    return division
  number = data.num_seen_clients
  unseen = {f'{UNSEEN}{name}': division[name][number:] for name in SPLITS}
  return {name: rows[:number] for name, rows in division.items()} | unseen


def _check_training(data: DataSettings, train: list) -> None:
  """Refuse clients of which none has an example to train on."""
  if any(map(len, train)):
    return
  raise bad_input(
    'test_partition',
    got=f'{data.test_partition}, with a test_fraction of {data.test_fraction}: '
    f'none of {len(train)} clients keeps a training example',
    expected='clients with several examples, of which some stay for training',
    choices=['fewer clients', 'a smaller test_fraction'],
    cause='clients of one example, or a share for training in the place of '
    'that for testing',
  )


def _labels_of(
  kind: str | Callable, tests: str, dataset: Dataset
) -> list[np.ndarray]:
  """Return the labels [P] by which both splits are dealt; of tokens, zeros."""
  labels = [split.y for split in (dataset.train, dataset.test)]
  if labels[0].ndim == 1:
    return labels
  if kind not in WITHOUT_CLASSES and not callable(kind):
    raise bad_input(
      'partition',
      got=f'{kind} for {dataset.name}, whose tokens have a label each',
      expected='a partition that asks for no class of an example',
      choices=[*WITHOUT_CLASSES, 'a function of your own'],
      cause='the field was left out: its default deals images by class',
    )
  if tests == 'independent':
    raise bad_input(
      'test_partition',
      got=f'independent for {dataset.name}, whose tokens have a label each',
      expected='a division of the tests that asks for no class of an example',
      choices=['same', 'whole', 'iid', 'split'],
    )
  return [np.zeros(len(y), int) for y in labels]


def identify(dataset: Dataset, division: Division) -> str:
  """Return the fingerprint of the images and of their partition."""
  rows = [own for split in division.values() for own in split]
  return f'{dataset.fingerprint}-{partition.fingerprint(rows)}'


def first_examples(dataset: Dataset, limit: int) -> Dataset:
  """Return the first `limit` training images, and as large a part of tests.

  Where the data say who holds an image, as large a part of each client's. Of a
  set whose training or test images lie class by class, as large a part of each
  class: its first images would be of the first classes only; so of a client of
  the user's own data whose images do. Parts are rounded up, so that there may
  be a few more images than `limit`.
  """
  size, is_own = len(dataset.train.y), dataset.name in OWN
  if not 0 < limit < size:
    return dataset
  both, clients = (dataset.train, dataset.test), dataset.clients
  labels, part = [images.y for images in both], Fraction(limit, size)
  is_sorted = any(map(_lies_by_class, labels))
  if clients:  # of prepared sets runs are stored
    blocks = labels if is_own else (None, None)
    rows = [*map(_first_of_each, [part, part], clients, blocks)]
  elif is_sorted:
    rows = [_first_of_each(part, own) for own in labels]
  else:
    num_tests = round(limit / size * len(dataset.test.y))
    rows = slice(limit), slice(max(dataset.num_classes, num_tests))
  train, test = (
    Images(images.x[own], images.y[own])
    for images, own in zip(both, rows, strict=True)
  )
  cut = dataset._replace(train=train, test=test)
  if clients:
    owners = zip(clients, rows, strict=True)
    cut = cut._replace(clients=tuple(whose[own] for whose, own in owners))
  # Of a prepared set the clients are always the same.
  if not (is_own if clients else is_sorted):
    return cut
  # The rows alone may equal those of the first images: other data, other keys.
  new = make_dataset(dataset.name, train, test, dataset.num_classes)
  return cut._replace(fingerprint=new.fingerprint)


def _lies_by_class(labels: np.ndarray) -> bool:
  """Return whether each of several classes is one block, as in folders."""
  if labels.ndim > 1:
    return False
  num_classes = len(np.unique(labels))
  num_blocks = 1 + np.count_nonzero(np.diff(labels))
  return 1 < num_classes == num_blocks < len(labels)


def _first_of_each(
  part: Fraction, owners: np.ndarray, labels: np.ndarray | None = None
) -> np.ndarray:
  """Return whether a row is in the first part of its owner's.

  Rounded up: every owner, a client or a class, keeps an example. With labels an
  owner whose classes lie in blocks gives one of each, then as large a part.
  """
  is_kept = np.zeros(len(owners), bool)
  for rows in _rows_of_each(owners):
    if labels is not None and _lies_by_class(labels[rows]):
      blocks = _rows_of_each(labels[rows])
      turns = np.concatenate([np.arange(len(b)) / len(b) for b in blocks])
      rows = rows[np.concatenate(blocks)[np.argsort(turns, kind='stable')]]
    is_kept[rows[: math.ceil(part * len(rows))]] = True
  return is_kept


def _rows_of_each(kinds: np.ndarray) -> list[np.ndarray]:
  """Return the rows of every kind, a client or a class, in their order."""
  order = np.argsort(kinds, kind='stable')
  _, firsts = np.unique(kinds[order], return_index=True)
  return np.split(order, firsts[1:])
