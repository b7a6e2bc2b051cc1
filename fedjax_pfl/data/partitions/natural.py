"""Every client has its own examples: those that bear its number in the data.

  rows(k) = {p : owners[p] = k},  in stored order

Nothing is drawn, so the seed changes nothing. With m = clients_per_domain above
1, an owner is a domain: its rows are shuffled, and cut into m equal clients,
m k .. m k + m - 1.
"""

from typing import Annotated

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule, count
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

ANY_LABELS = SAME_CLIENTS = True
Clients = Annotated[
  int,
  count('clients for each client of the data'),
  'clients that share the examples of one client of the data, as of a domain',
]


def natural(
  sizes: Sizes, rng: Rng, *, clients_per_domain: Clients = 1
) -> Deals:
  """Return how rows are dealt: each to its owner, or to one of its clients."""
  each = clients_per_domain
  train, test = _check_owners(sizes, each)

  def rows_of(owners: np.ndarray, rng: Rng) -> Indices:
    order = np.argsort(owners, kind='stable')
    domains = np.arange(1, sizes.num_clients // each)
    rows = np.split(order, np.searchsorted(owners[order], domains))
    if each == 1:
      return rows
    cut = [np.array_split(rng.permutation(domain), each) for domain in rows]
    return [np.sort(client) for domain in cut for client in domain]

  def train_rows(labels: np.ndarray, rng: Rng) -> Indices:
    if each > 1 and labels.ndim == 1:
      _check_classes(labels, train, each)
    return rows_of(train, rng)

  return train_rows, lambda labels, rng: rows_of(test, rng)


def _check_classes(labels: np.ndarray, owners: np.ndarray, each: int) -> None:
  """Refuse a domain of one class, which says nothing of its features."""
  held = np.unique(np.stack([owners, labels], 1), axis=0)  # (domain, class)
  classes = np.bincount(held[:, 0])
  if classes.min() == 1:
    domain = int(classes.argmin())
    label = held[held[:, 0] == domain, 1][0]
    raise bad_input(
      'clients_per_domain',
      got=f'{each}, and domain {domain} has training examples of one class, '
      f'{label}',
      expected='domains of two classes or more',
      choices=['clients_per_domain=1, where each is a client of its own'],
      cause='a domain that was unpacked in part',
    )


def _check_owners(sizes: Sizes, each: int) -> list[np.ndarray]:
  """Return who holds an example in both splits; refuse a wrong number.

  Owners of tests matter only if clients are tested on examples of their own.
  """
  if sizes.owners is None:
    raise bad_input(
      'partition',
      got='natural',
      expected='a data set that says who holds an example',
      choices=['dataset=npz with an array `clients`', 'dataset=shakespeare'],
      cause='an image set without clients, or `clients` that was left out',
    )
  owners = [*map(np.asarray, sizes.owners)]
  train = np.unique(owners[0])
  held = owners if sizes.test_partition == 'same' else owners[:1]
  number = 1 + max(int(clients.max(initial=0)) for clients in held)
  if len(train) != number or (train != np.arange(number)).any():
    # The first number that is skipped.
    gap = int(np.argmax(np.append(train, number) != np.arange(len(train) + 1)))
    what = f'and client {gap} has no training example'
    raise bad_input(
      'partition',
      got=f'natural, {what if train[0] >= 0 else f"with client {train[0]}"}',
      expected=f'one for each client, 0 to {number - 1}',
      choices=['np.unique(clients, return_inverse=True)[1] leaves no gap'],
      cause='gaps, or numbers from 1, or a client with test examples only',
    )
  Rule(
    lambda value: value == each * number,
    f'{each * number}, the clients of the data set',
    'partition=natural divides as the data do, into no other number',
    [f'num_clients={each * number}'],
  ).check('num_clients', sizes.num_clients)
  if each > 1 and (few := np.bincount(owners[0].astype(int)).min()) < each:
    raise bad_input(
      'clients_per_domain',
      got=each,
      expected=f'at most {few}, the training examples of the smallest domain',
      cause='a number of examples, or of all clients',
    )
  return owners
