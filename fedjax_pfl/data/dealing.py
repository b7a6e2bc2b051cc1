"""The images of a config, dealt to its clients: as rows, then as arrays."""

from collections.abc import Callable, Sequence

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule, one_of
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.core.user_code import is_code, value_of
from fedjax_pfl.data import client_data, partition
from fedjax_pfl.data.batching import is_float
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.fields import DataSettings
from fedjax_pfl.data.held_out import hold_out, order_clients
from fedjax_pfl.data.images import Dataset, Images, scale_images
from fedjax_pfl.data.used_examples import examples_of

Log = Callable[[str], None]
# Whose the images are, by part: for each client an array of rows of the images.
# Those without UNSEEN are of the clients that take part in rounds.
Division = dict[str, list]
SPLITS = 'train', 'test'
UNSEEN = 'unseen_'  # begins the names of splits of clients who come later
WORDS = {
  'train': 'training',
  'test': 'testing',
  'validation': 'validation',
  'unseen_train': 'training of unseen clients',
  'unseen_test': 'testing of unseen clients',
}
HELD_OUT = ', on held-out examples of their own'


def load_images(data: DataSettings, quick: bool, log: Log) -> Dataset:
  """Return the images of a config, in its number and size."""
  dataset = load_dataset(
    data.dataset,
    data_dir=data.data_dir,
    fallback_to_synthetic=quick,
    log_fn=log,
    image_size=data.image_size,
    table=data.table,
  )
  if dataset.note:
    log(dataset.note)
  return scale_images(examples_of(data, dataset), data.side)


def idle_fields(data: DataSettings) -> str:
  """Return what is set of other partitions, for which it may be: 'a=5, b=1'."""
  idle = {*partition.FIELDS} - {*partition.settings_of(data.partition)}
  if data.test_partition not in partition.OF_OWN:
    idle.add('test_fraction')
  return ', '.join(
    f'{name}={getattr(data, name)}'
    for name in sorted(idle)
    if getattr(data, name) != DataSettings.ruled[name].default
  )


def divide(data: DataSettings, seed: int, dataset: Dataset) -> Division:
  """Return the rows of every client for training, and those for testing.

  With `validation_fraction` also those for validation: less for training. With
  `unseen_clients` those are apart; what they would validate on is not used.
  """
  kind = data.partition
  if is_code(kind):
    kind = value_of('partition', kind)
    words = 'a function (labels, num_clients, rng) -> rows of every client'
    Rule(callable, words).check('partition', kind)
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
    **{name: getattr(data, name) for name in partition.settings_of(kind)},
  )
  if data.unseen_clients:
    order = _order(data, seed, dataset)
    train, test = ([rows[client] for client in order] for rows in (train, test))
  division = {'train': train, 'test': test}
  if data.validation_fraction:
    kept, held_out = hold_out(train, data.validation_fraction, seed)
    division |= {'train': kept, 'validation': held_out}
  if data.unseen_clients:
    number = data.num_seen_clients
    unseen = {f'{UNSEEN}{name}': division[name][number:] for name in SPLITS}
    division = {name: rows[:number] for name, rows in division.items()} | unseen
  _check_training(data, division['train'])
  return division


def names_of(data: DataSettings, seed: int, dataset: Dataset) -> Sequence[str]:
  """Return the names of all clients by their ids [K]; () where none has one."""
  names = _names_in(data, dataset)
  return names and [names[client] for client in _order(data, seed, dataset)]


def _names_in(data: DataSettings, dataset: Dataset) -> Sequence[str]:
  """Return the names of the clients in the order of the data."""
  names, each = dataset.client_names, data.clients_per_domain
  if data.partition != 'natural':
    return ()
  if each == 1:
    return names
  return [f'{name}_{at}' for name in names for at in range(each)]


def _order(data: DataSettings, seed: int, dataset: Dataset) -> np.ndarray:
  """Return all clients [K]: those who take part, then those who come later."""
  later = data.unseen_clients
  if not isinstance(later, tuple):
    return order_clients(data.num_clients, later, seed)
  names = _names_in(data, dataset)
  known = one_of(names, 'a client of the data', 'a mistyped name')
  for name in later:
    known.check('unseen_clients', name)
  return np.argsort(np.isin(names, later), kind='stable')


def stacked(
  data: DataSettings,
  dataset: Dataset,
  division: Division,
  log: Log,
) -> dict[str, ClientData]:
  """Return the examples of each part, which share the arrays of images."""
  pools, splits = {'train': dataset.train, 'test': dataset.test}, {}
  is_split = data.test_partition in partition.OF_OWN
  for name, rows in division.items():
    side = 'test' if name.endswith('test') and not is_split else 'train'
    clients = client_data.stack_clients(pools[side], rows, 'host')
    # Others share these images, of which a CPU has a view now.
    pools[side], splits[name] = Images(clients.x, clients.y), clients
    words = WORDS[name] + HELD_OUT * (is_split and name == 'test')
    log(
      f'{dataset.name}, {words}: {client_data.describe(clients)}; partition '
      f'{partition.fingerprint(rows)}'
    )
  for who in ('', UNSEEN)[: 1 + bool(data.unseen_clients)]:
    pair = (splits[f'{who}{name}'] for name in SPLITS)
    if note := client_data.describe_empty_clients(*pair):
      log(note)
  return splits


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
  )


def _labels_of(
  kind: str | Callable, tests: str, dataset: Dataset
) -> list[np.ndarray]:
  """Return the labels [P] by which both splits are dealt; of others, zeros."""
  labels = [split.y for split in (dataset.train, dataset.test)]
  if labels[0].ndim == 1:
    return labels
  what = 'tokens have a label each'
  if is_float(labels[0]):
    what = 'labels are no classes'
  if kind not in partition.ANY_LABELS and not callable(kind):
    raise bad_input(
      'partition',
      got=f'{kind} for {dataset.name}, whose {what}',
      expected='a partition that asks for no class of an example',
      choices=[*partition.ANY_LABELS, 'a function of your own'],
    )
  if tests == 'independent':
    raise bad_input(
      'test_partition',
      got=f'independent for {dataset.name}, whose {what}',
      expected='a division of the tests that asks for no class of an example',
      choices=['same', 'whole', 'iid', 'split'],
    )
  return [np.zeros(len(y), int) for y in labels]


def identify(dataset: Dataset, division: Division) -> str:
  """Return the fingerprint of the images and of their partition."""
  rows = [own for split in division.values() for own in split]
  return f'{dataset.fingerprint}-{partition.fingerprint(rows)}'
