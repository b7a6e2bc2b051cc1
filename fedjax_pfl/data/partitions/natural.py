"""Every client has its own examples: those that bear its number in the data.

  rows(k) = {p : clients[p] = k},  in stored order

Nothing is drawn, so the seed changes nothing. `deal` takes the numbers of the
clients in the place of labels.
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.partitions import Indices, Rng, Sizes

Owners = tuple[np.ndarray, np.ndarray]  # for training [P], and for testing


class Natural(NamedTuple):
  """The clients of the data set."""

  def draw(self, sizes: Sizes, rng: Rng) -> int:
    del rng
    return sizes.num_clients

  def deal(self, plan: int, owners: np.ndarray, rng: Rng) -> Indices:
    del rng
    order = np.argsort(owners, kind='stable')
    cuts = np.searchsorted(owners[order], np.arange(1, plan))
    return np.split(order, cuts)


def check_owners(
  owners: Owners | None, num_clients: int, test_partition: str
) -> Owners:
  """Return the clients of a data set; refuse those that do not match.

  Who holds the tests matters only where clients are tested on their own.
  """
  if owners is None:
    raise bad_input(
      'partition',
      got='natural',
      expected='a data set that says who holds an example',
      choices=['dataset=npz with an array `clients`, or a folder of files'],
      cause='an image set without clients, or `clients` that was left out',
    )
  owners = np.asarray(owners[0]), np.asarray(owners[1])
  train = np.unique(owners[0])
  held = owners if test_partition == 'same' else owners[:1]
  size = 1 + max(int(numbers.max(initial=0)) for numbers in held)
  if len(train) < size:
    # The first number that is skipped; one of them is, by the pigeonholes.
    gap = int(np.argmax(np.append(train, size) != np.arange(len(train) + 1)))
    raise bad_input(
      'partition',
      got=f'natural, and client {gap} has no training example',
      expected=f'one for each client, 0 to {size - 1}',
      choices=['np.unique(clients, return_inverse=True)[1] leaves no gap'],
      cause='gaps, or numbers from 1, or a client with test examples only',
    )
  if num_clients != size:
    raise bad_input(
      'num_clients',
      got=num_clients,
      expected=f'{size}, the clients of the data set',
      choices=[f'num_clients={size}'],
      cause='partition=natural divides as the data do, into no other number',
    )
  return owners
