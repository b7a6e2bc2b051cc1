"""Partitions of the papers, at their scale: sizes, classes, and how fast.

The golden cases compare rows with those of the authors' code.
"""

import time

import numpy as np
import pytest
from helpers import refused
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions import Sizes
from fedjax_pfl.data.partitions.dirichlet import draw_plan
from fedjax_pfl.data.partitions.semantic import draw_clusters
from fedjax_pfl.data.partitions.shards import shard_assignment

CIFAR = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)


def divide(name, labels=CIFAR, num_clients=20, num_classes=10, **settings):
  """Return the partition, and how many of each class a client has in both."""
  sizes = {'num_clients': num_clients, 'num_classes': num_classes}
  indices = partition(name, *labels, **sizes, **settings)
  both = zip(labels, indices, strict=True)
  return indices, *(class_counts(y, rows, num_classes) for y, rows in both)


@pytest.mark.parametrize(
  ('num_own', 'holders'),
  [
    (2, [8, 7, 7, 6, 10, 7, 8, 8, 11, 8]),
    (10, [40] * 10),
  ],
)
def test_holders_of_classes(num_own, holders):
  """40 clients, ten classes, seed 0; training and testing have the same."""
  indices, *tables = divide(
    'classes', num_clients=40, classes_per_client=num_own
  )
  for labels, rows, counts in zip(CIFAR, indices, tables, strict=True):
    check_partition(rows, len(labels))
    assert (counts > 0).sum(0).tolist() == holders
    # Equal shares of a class, but for one row.
    share = np.bincount(labels)[0] / np.array(holders)
    assert (np.abs(counts - share) < 1)[counts > 0].all()


@pytest.mark.parametrize(
  ('num_clients', 'seed', 'tries', 'sizes'),
  [(40, 1, 2, (25, 1272, 3134)), (100, 0, 13, (14, 455.5, 1595))],
)
def test_sizes_of_capped_dirichlet(num_clients, seed, tries, sizes):
  """CIFAR-10; with seed 1, 200 clients need 1,166 tries, 1.7 s of a core."""
  plan = draw_plan(Sizes(num_clients, np.full(10, 5000), seed), 0.1, 10)
  held = plan.counts.sum(0)
  got = plan.tries, held.min(), np.median(held), held.max()
  assert got == (tries, *sizes)


@pytest.mark.parametrize(
  ('name', 'settings', 'error'),
  [
    # A part lies between two rounded borders: each off by half an example.
    ('dirichlet', {}, 1 / 500 + 1 / 100),
    ('dirichlet_capped', {'dirichlet_min_size': 50}, 1 / 100),
  ],
)
def test_testing_has_the_shares_of_training(name, settings, error):
  _, a, b = divide(name, dirichlet_beta=0.3, **settings)
  assert np.abs(a / 500 - b / 100).max() <= error
  assert np.abs(a / 500 - b[::-1] / 100).max() > 0.1
  assert a.sum(1).min() >= settings.get('dirichlet_min_size', 0)


def test_a_class_nobody_trains_on_is_shared_equally():
  labels = shuffled_labels([50] * 9 + [0], 10), shuffled_labels(40, 10)
  _, _, counts = divide(
    'dirichlet_capped', labels, num_clients=4, dirichlet_min_size=1
  )
  assert counts[:, 9].tolist() == [10] * 4


def test_a_draw_that_finds_nobody_to_give_to_is_drawn_again():
  """Of two clients one takes all of nearly every class, until it is full."""
  labels = (shuffled_labels(20, 10),) * 2
  small = {'dirichlet_beta': 0.002, 'dirichlet_min_size': 1}
  for seed in range(5):
    (train, _), *_ = divide('dirichlet_capped', labels, 2, **small, seed=seed)
    check_partition(train, 200)


def test_dirichlet_sizes_of_cifar100():
  """100 classes of 500: a part has mean 5 and variance 500^2 var(p)."""
  labels = shuffled_labels(500, 100), shuffled_labels(100, 100)
  _, counts, _ = divide('dirichlet', labels, 100, 100, dirichlet_beta=0.5)
  assert counts.sum(1).mean() == 500
  assert counts.sum(1).std() == pytest.approx(70, rel=0.15)


@pytest.mark.parametrize('beta', [5e-324, 1e-3, 1e5, 1.7e308])
def test_every_dirichlet_beta_ends(beta):
  train = shuffled_labels((120, 99, 101, 100, 7, 143, 50, 100, 100, 0), 10)
  (rows, _), counts, _ = divide(
    'dirichlet', (train, train[::3]), dirichlet_beta=beta
  )
  check_partition(rows, len(train))
  sizes = counts.sum(1)
  if beta < 1:
    assert (sizes == 0).sum() >= 5  # at least ten of twenty clients at 0
  else:
    assert np.ptp(sizes) <= 10


def test_the_choices_of_the_shards_sentence_work():
  rng = np.random.default_rng(0)
  for sizes in ((100, 62), (20, 100), (6, 10), (7, 10)):
    words = refused(shard_assignment, rng, sizes[0], 1, sizes[1])
    words = words.split('Choices: ')[1].split('.')[0].split(' (')[0]
    for choice in words.split(', '):
      shard_assignment(rng, sizes[0], int(choice), sizes[1])


def test_shards_of_emnist_are_ragged_and_fast():
  """1,488 clients, 62 classes of very unequal sizes, as many labels.

  Seconds of this process; measured: 0.2 for 6 shards, 1.0 for 60.
  """
  rng = np.random.default_rng(0)
  share = 1 / np.arange(2, 64)
  train, test = (
    rng.choice(62, size, p=share / share.sum()) for size in (697_932, 116_323)
  )
  began = time.process_time()
  clients, held_out = partition(
    'shards', train, test, num_clients=1488, num_classes=62, shards_per_client=6
  )
  assert time.process_time() - began < 5
  check_partition(clients, 697_932)
  check_partition(held_out, 116_323)
  blocks = np.bincount(train) / 144
  sizes = np.array([len(rows) for rows in clients])
  assert 6 * blocks.min() - 6 < sizes.min() < sizes.max() < 6 * blocks.max() + 6
  assert sizes.max() > 3 * sizes.min()


def test_pathological_cifar10_is_five_pairs_of_classes():
  """The authors' rule: sort by label, cut, take the first of every class."""
  indices, counts, _ = divide('pathological', num_clients=100)
  for labels, rows in zip(CIFAR, indices, strict=True):
    size = len(labels) // 200
    blocks = np.argsort(labels, kind='stable').reshape(10, 20, size)
    in_turn = blocks.swapaxes(0, 1).reshape(100, 2 * size)
    np.testing.assert_array_equal(np.stack(rows), in_turn)
  for client in (0, 7, 99):
    first = 2 * (client % 5)
    assert counts[client, first : first + 2].tolist() == [25, 25]


LETTERS = (10, 26, 26)


def test_semantic_emnist_is_1543_clients():
  """Measured: 4 ms; for TRIES draws in vain 1.8 s. Clusters: 12 or 14 classes.

  The authors' sizes are 452.3 and 203.2.
  """
  counts = np.r_[np.full(10, 34_500), np.full(52, 6787)]
  classes = [np.arange(start, 62, 5) for start in range(5)]
  rng, sizes = np.random.default_rng(0), Sizes(1543, counts, 0)
  clusters = draw_clusters(sizes, classes, 100, 800, rng)
  drawn = np.concatenate([cluster.sizes for cluster in clusters])
  assert len(drawn) == 1543 and drawn.min() >= 100 and drawn.max() <= 799
  assert drawn.mean() == pytest.approx(452.3, abs=2)
  assert drawn.std() == pytest.approx(203.2, rel=0.05)
  for cluster in clusters:
    assert cluster.total == counts[cluster.classes].sum()
    assert 0 <= cluster.total - sum(cluster.sizes) < 800


def test_semantic_tiny_imagenet_is_ten_clusters_of_390_clients():
  labels = shuffled_labels(500, 200), shuffled_labels(50, 200)
  (train, test), *counts = divide(
    *('semantic', labels, 390, 200),
    class_clusters=10,
    max_client_size=400,
  )
  sizes = np.array([len(rows) for rows in train])
  # The docstring of the authors: 251.98 and 87.56.
  assert sizes.mean() == pytest.approx(252, abs=3)
  assert sizes.std() == pytest.approx(87.6, rel=0.1)
  # Disjoint clusters of 20 classes: whoever shares one class shares all.
  owned = (counts[0] > 0) | (counts[1] > 0)
  together = (owned @ owned.T.astype(int)) > 0
  clusters = np.unique(together, axis=0)
  assert len(clusters) == 10 and (clusters.sum(0) == 1).all()
  assert ((clusters @ owned.astype(int) > 0).sum(1) == 20).all()
  assert sizes.sum() > 0.95 * 100_000
  # Testing: a tenth of the rows, and as large a share of them.
  few = np.array([len(rows) for rows in test])
  assert np.abs(few - sizes / 10).max() < 1


@pytest.mark.parametrize(
  ('num_classes', 'changes'),
  [(62, {'class_families': LETTERS}), (200, {'class_clusters': 10}), (10, {})],
)
def test_the_quick_sizes_of_semantic_give_ten_clients(num_classes, changes):
  labels = (shuffled_labels(1000 // num_classes, num_classes),) * 2
  sizes = {'min_client_size': 40, 'max_client_size': 160, **changes}
  (train, _), counts, _ = divide('semantic', labels, 10, num_classes, **sizes)
  assert len(train) == 10
  if num_classes == 62:  # a fifth of every family of classes
    families = np.add.reduceat(counts > 0, [0, 10, 36], axis=1, dtype=int)
    assert (families <= [2, 6, 6]).all() and (families > 0).all()
