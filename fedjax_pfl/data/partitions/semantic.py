"""Clusters of classes, and clients of unequal sizes inside a cluster.

  cluster j = the j-th part of every family of classes, in random order
  n_i ~ Uniform{least .. most - 1}   until a cluster has no more than `least`
                                     rows left, or fewer than n_i

The division of EMNIST (families: 10 digits, 26 upper and 26 lower case
letters; 5 clusters) and of Tiny-ImageNet (one family; 10 clusters; 100 to
400) in the SuPerFed paper. A part is floor(|family| / clusters) classes, the
last has the rest. Rows left over in a cluster belong to no client.

The number of clients is random: sizes are drawn until it is K, at most TRIES
times. The test rows of a cluster are divided in proportion, with as large a
share left over.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule, count, interval, is_int, tuple_of
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

TRIES = 10_000
CAUSE = 'the settings of another data set: (10, 26, 26) is EMNIST'
FAMILIES = tuple_of(
  lambda value: is_int(value) and value >= 1,
  'whole numbers of classes, 1 or more; () is one family of all classes',
  'a single number: write (10,)',
)


class Cluster(NamedTuple):
  """Clients that share their classes, and nothing with other clusters."""

  classes: np.ndarray
  sizes: np.ndarray  # training examples of each client
  total: int  # training examples, with those left over


def semantic(
  sizes: Sizes,
  rng: Rng,
  *,
  class_clusters: Annotated[
    int, count('clusters of classes'), 'disjoint clusters of classes'
  ] = 5,
  class_families: Annotated[
    Sequence[int], FAMILIES, "sizes of families; EMNIST's are (10, 26, 26)"
  ] = (),
  min_client_size: Annotated[
    int, count('training examples of a client'), 'images of a client, from this'
  ] = 100,
  max_client_size: Annotated[
    int,
    count('training examples that no client reaches', smallest=2),
    'images of a client, to below this',
  ] = 800,
) -> Deals:
  """Return how rows are dealt: in disjoint clusters of classes."""
  families = tuple(class_families) or (sizes.num_classes,)
  Rule(
    lambda value: sum(families) == sizes.num_classes,
    f'numbers of classes that sum up to {sizes.num_classes}, or () for all',
    CAUSE,
  ).check('class_families', class_families)
  number = interval(f'[1, {min(families)}]', CAUSE, 'clusters')
  number.check('class_clusters', class_clusters)
  size = interval(f'[1, {max_client_size})', CAUSE, 'a size')
  size.check('min_client_size', min_client_size)
  classes = _draw_classes(families, class_clusters, rng)
  clusters = _draw_clusters(
    sizes, classes, min_client_size, max_client_size, rng
  )
  deal = functools.partial(_deal_clusters, clusters)
  return deal, deal


def _draw_classes(
  families: tuple[int, ...], number: int, rng: Rng
) -> list[np.ndarray]:
  """Return the classes of every cluster."""
  parts = []
  for end, size in zip(np.cumsum(families), families, strict=True):
    family = rng.permutation(np.arange(end - size, end))
    parts.append(np.split(family, size // number * np.arange(1, number)))
  return [np.concatenate(cluster) for cluster in zip(*parts, strict=True)]


def _draw_clusters(
  sizes: Sizes, classes: list[np.ndarray], least: int, most: int, rng: Rng
) -> list[Cluster]:
  """Return the clusters of K clients; their sizes are drawn until it is K."""
  totals = [int(sizes.class_counts[labels].sum()) for labels in classes]
  outcomes: Counter[int] = Counter()
  for _ in range(TRIES):
    drawn = [_draw_sizes(total, least, most, rng) for total in totals]
    number = sum(map(len, drawn))
    if number == sizes.num_clients:
      return [*map(Cluster, classes, drawn, totals)]
    outcomes[number] += 1
  (usual, _), *_ = outcomes.most_common(1)
  raise bad_input(
    'num_clients',
    got=sizes.num_clients,
    expected=f'a number that comes out of the draw: in {TRIES:,} draws came '
    f'{min(outcomes)} to {max(outcomes)} clients, {usual} the most often',
    choices=[usual],
    cause='sizes or clients of another data set: clients are somewhat fewer '
    'than examples / mean size',
  )


def _draw_sizes(total: int, least: int, most: int, rng: Rng) -> np.ndarray:
  """Return the sizes of the clients of a cluster with `total` rows."""
  drawn = rng.integers(least, most, total // least)
  ends = np.cumsum(drawn)
  # The rows suffice, and before that there were more than the least left.
  return drawn[(ends <= total) & (total - ends + drawn > least)]


def _deal_clusters(
  clusters: list[Cluster], labels: np.ndarray, rng: Rng
) -> Indices:
  """Return the index vectors, cluster by cluster."""
  parts: Indices = []
  for cluster in clusters:
    rows = np.flatnonzero(np.isin(labels, cluster.classes))
    ends = np.cumsum(cluster.sizes) * len(rows) // max(cluster.total, 1)
    parts += np.split(rng.permutation(rows), ends)[:-1]
  return parts
