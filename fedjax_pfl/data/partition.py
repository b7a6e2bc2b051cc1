"""Divide the examples of an image set among clients. Pure numpy.

A partition is two lists of index vectors, one vector a client: for training
and for testing. They index the two splits of an image set; with test_partition
'split', both index the training set; with 'merged' both sets as one.
"""

import functools
import importlib
import pkgutil
import typing
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import Field
from fedjax_pfl.core.rules import Rule, interval, one_of
from fedjax_pfl.core.user_code import describe
from fedjax_pfl.data import partitions
from fedjax_pfl.data.images import digest
from fedjax_pfl.data.own_partition import own
from fedjax_pfl.data.partitions import Deals, Indices, Owners, Rng, Sizes
from fedjax_pfl.data.partitions.iid import deal_equally
from fedjax_pfl.data.partitions.shards import deal_at_random, shard_assignment

# Each is a file of `partitions/`, and the function of this name in it.
FILES = {
  file.name: importlib.import_module(f'{partitions.__name__}.{file.name}')
  for file in pkgutil.iter_modules(partitions.__path__)
}
PARTITIONS = {name: getattr(file, name) for name, file in FILES.items()}
# Those that ask for no class of an example; with every seed the same clients.
ANY_LABELS, SAME_CLIENTS = (
  tuple(name for name, file in FILES.items() if hasattr(file, mark))
  for mark in ('ANY_LABELS', 'SAME_CLIENTS')
)
TEST_PARTITIONS = ('same', 'independent', 'whole', 'iid', 'split', 'merged')
OF_OWN = ('split', 'merged')  # a client is tested on a part of its own rows
TESTS = one_of(TEST_PARTITIONS, 'a way to divide the tests')
SHARE = interval(
  '(0, 1)', 'a percentage, or a number', 'a share of the training examples'
)
WHOLE = Rule(
  lambda value: isinstance(value, int | np.integer) and value >= 0,
  'a whole number, 0 or more',
  'a division, which makes floats: use //',
)
ROUNDING = 1e-9  # (1 - 0.9) * 10 is 0.9999999999


def partition(
  name: str | Callable[..., Indices],
  train_labels: np.ndarray,
  test_labels: np.ndarray,
  *,
  num_clients: int,
  num_classes: int,
  test_partition: str = 'same',
  test_shards_per_client: int = 100,
  test_fraction: float = 0.2,
  seed: int = 0,
  clients: Owners | None = None,
  **settings: Any,
) -> tuple[Indices, Indices]:
  """Return the rows of every client, for training and for testing.

  The seed is split in four: the draws for the clients (their classes), for
  training, for testing and for independent test classes are independent.

  Args:
    name: how training examples are divided, one of
      `PARTITIONS`; or a function (labels [P], num_clients,
      rng) -> rows of every client, which serves the tests as well.
    train_labels: the labels of the training set [P].
    test_labels: the labels of the test set.
    num_clients: K.
    num_classes: Y.
    test_partition: how test examples are divided:
      same          as the training set: a client has the same classes in both
      independent   by itself, into `test_shards_per_client` shards a client
      whole         not at all: every client has all of them, in stored order
      iid           into equal random parts
      split         they are not used: a client is tested on `test_fraction` of
                    its training rows, drawn at random and left out of training
      merged        as 'split', and what is divided is both sets as one: rows
                    from P on are those of the test set
    test_shards_per_client: for 'independent'.
    test_fraction: for 'split' and 'merged'.
    seed: of all draws.
    clients: for 'natural': who holds each training example [P], and each test
      example, whole numbers from 0; `Dataset.clients`.
    **settings: of the partition of that name, such as `shards_per_client`.

  Returns:
    (train, test): for each client a vector of rows of the training set, and one
    of the test set (with 'split' of the training set, with 'merged' of both).

  >>> labels = np.repeat(np.arange(10), 20)
  >>> train, test = pfl.partition('shards', labels, labels, num_clients=5,
  ...                             num_classes=10, shards_per_client=4)
  >>> [len(rows) for rows in train], len(np.unique(labels[train[0]])) <= 4
  ([40, 40, 40, 40, 40], True)
  """
  numbers = {
    'num_clients': num_clients,
    'num_classes': num_classes,
    'test_shards_per_client': test_shards_per_client,
    'seed': seed,
  }
  _check_values(name, settings, numbers, test_partition, test_fraction)
  train_labels, test_labels = np.asarray(train_labels), np.asarray(test_labels)
  _check_labels(train_labels, test_labels, num_classes, test_partition)
  if clients is not None:
    _check_owners(clients, train_labels, test_labels)
  if test_partition == 'merged':
    train_labels = np.concatenate([train_labels, test_labels])
    clients = clients and (np.concatenate(clients), clients[1][:0])
    test_labels, test_partition = test_labels[:0], 'split'
  if (name, test_partition) != ('natural', 'same'):
    _check_clients(num_clients, train_labels, test_labels, test_partition)
  rngs = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(4))
  for_clients, for_train, for_test, for_test_classes = rngs
  class_counts = np.bincount(train_labels, minlength=num_classes)
  deal_train, deal_test = _find(name, settings)(
    Sizes(num_clients, class_counts, seed, clients, test_partition), for_clients
  )
  train = deal_train(train_labels, for_train)
  if test_partition == 'split':
    return split(train, test_fraction, for_test)
  if test_partition == 'whole':
    return train, [np.arange(len(test_labels))] * num_clients
  if test_partition == 'iid':
    return train, deal_equally(num_clients, test_labels, for_test)
  if test_partition == 'independent':
    assignment = shard_assignment(
      for_test_classes,
      num_clients,
      test_shards_per_client,
      num_classes,
      field='test_shards_per_client',
    )
    return train, deal_at_random(assignment, test_labels, for_test)
  return train, deal_test(test_labels, for_test)


def split(
  indices: Sequence[np.ndarray], test_fraction: float, rng: Rng
) -> tuple[Indices, Indices]:
  """Return floor((1 - test_fraction) n) rows of every client, and the rest."""
  cuts = [int((1 - test_fraction) * len(rows) + ROUNDING) for rows in indices]
  parts = [
    np.split(rng.permutation(rows), [cut])
    for rows, cut in zip(indices, cuts, strict=True)
  ]
  return [train for train, _ in parts], [test for _, test in parts]


def fingerprint(indices: Sequence[np.ndarray]) -> str:
  """Return 12 hexadecimal digits that identify the vectors and their order."""
  counts = np.array([len(rows) for rows in indices], '<i8')
  return digest(counts, np.concatenate([*indices]).astype('<i8'))


def settings_of(name: str | Callable) -> tuple[str, ...]:
  """Return the settings of a partition, fields of a config; () of a user's."""
  return tuple(getattr(PARTITIONS.get(name), '__kwdefaults__', None) or ())


def _fields() -> dict[str, Field]:
  """Return the settings of all partitions: the keywords of their functions.

  Each is annotated with its rule, and a line of help.
  """
  fields, users = {}, defaultdict(list)
  for name, function in PARTITIONS.items():
    hints = typing.get_type_hints(function, include_extras=True)
    for setting in settings_of(name):
      rule, text = hints[setting].__metadata__
      default = function.__kwdefaults__[setting]
      fields[setting] = Field(default, rule, help=text)
      users[setting].append(name)
  return {
    name: one._replace(help=f'{", ".join(users[name])}: {one.help}')
    for name, one in fields.items()
  }


FIELDS = _fields()


def _find(
  name: str | Callable[..., Indices], settings: Mapping[str, Any]
) -> Callable[..., Deals]:
  """Return the partition of this name with these settings."""
  if callable(name):
    return functools.partial(own, function=name)
  return functools.partial(PARTITIONS[name], **settings)


def _check_values(name, settings, numbers, test_partition, share) -> None:
  TESTS.check('test_partition', test_partition)
  if test_partition in OF_OWN:
    SHARE.check('test_fraction', share)
  if not callable(name):
    one_of(PARTITIONS, 'a known partition').check('partition', name)
    cause = 'a setting of another partition'
    known = one_of(settings_of(name), f'a setting of {name}', cause)
    for setting, value in settings.items():
      known.check('partition', setting)
      FIELDS[setting].rule.check(setting, value)
  for field, value in numbers.items():
    WHOLE.check(field, value)
  if callable(name) and settings:
    raise bad_input(
      'partition',
      got=f'a function with {", ".join(settings)}',
      expected='no setting beside a function',
      choices=['functools.partial(function, ...), which has them'],
    )


def _check_clients(num_clients, train, test, test_partition) -> None:
  num_train, num_test = len(train), len(test)
  is_both = test_partition not in ('whole', 'split')
  most = min(num_train, num_test) if is_both else num_train
  Rule(
    lambda value: 1 <= value <= most,
    f'from 1 to {most}, so that each can have an example ({num_train} for '
    f'training, {num_test} for testing)',
    'a data set that was shrunk without fewer clients',
  ).check('num_clients', num_clients)


def _check_owners(clients: Owners, *labels: np.ndarray) -> None:
  owners = [*map(np.asarray, clients)]
  fit = [rows.shape for rows in owners] == [(len(rows),) for rows in labels]
  if not fit or any(rows.dtype.kind not in 'iuf' for rows in owners):
    train, test = map(len, labels)
    raise bad_input(
      'clients',
      got=', '.join(map(describe, owners)),
      expected=f'a pair: an owner for each of {train} training and {test} test '
      'examples, whole numbers from 0',
      cause='the clients of another data set, one vector for both splits, or '
      'names of clients: np.unique(names, return_inverse=True)[1]',
    )


def _check_labels(
  train: np.ndarray, test: np.ndarray, num_classes: int, test_partition: str
) -> None:
  for name, labels, least in (('train', train, 1), ('test', test, 0)):
    is_vector = labels.ndim == 1 and len(labels) >= least
    if not is_vector or (labels.size and labels.dtype.kind not in 'biu'):
      raise bad_input(
        f'{name}_labels',
        got=f'{labels.dtype}{list(labels.shape)}',
        expected='a vector [P] of whole numbers, the class of each example',
        cause='one-hot labels (labels.argmax(1)), floats (labels.astype(int)), '
        'words (np.unique(words, return_inverse=True)[1]), or no example',
      )
  if not len(test) and test_partition not in OF_OWN:
    raise bad_input(
      'test_partition',
      got=test_partition,
      expected='split: the data set has no test examples, so that clients are '
      'tested on a part of their training examples',
      choices=['test_partition=split'],
    )
  labels = np.concatenate([train, test]) if len(test) else train
  if labels.min() < 0 or labels.max() >= num_classes:
    raise bad_input(
      'num_classes',
      got=num_classes,
      expected='more than the largest label; labels go from '
      f'{labels.min()} to {labels.max()}',
    )
