"""Clusters of classes, and clients of unequal sizes inside a cluster."""

import time

import numpy as np
import pytest
from labels import class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions import Sizes, semantic
from fedjax_pfl.data.partitions.semantic import Cluster, Semantic, draw_sizes

LETTERS = (10, 26, 26)


def divide(train, test, **settings):
  small = {'num_clients': 22, 'num_classes': 10}
  return partition('semantic', train, test, **{**small, **settings})


def rows_of(clusters):
  return [sum(cluster.sizes) for cluster in clusters]


def test_emnist_is_five_clusters_of_1543_clients_and_fast():
  """Measured: 4 ms; for TRIES draws in vain 1.8 s."""
  counts = np.r_[np.full(10, 34_500), np.full(52, 6787)]
  began = time.process_time()
  plan = Semantic(class_families=LETTERS).draw(
    Sizes(1543, counts, 0), np.random.default_rng(0)
  )
  assert time.process_time() - began < 10
  families = np.repeat([0, 1, 2], LETTERS)
  parts = [np.bincount(families[cluster.classes]) for cluster in plan]
  assert [part.tolist() for part in parts] == [[2, 5, 5]] * 4 + [[2, 6, 6]]
  classes = np.concatenate([cluster.classes for cluster in plan])
  assert sorted(classes) == [*range(62)] and list(classes) != sorted(classes)
  sizes = np.concatenate([cluster.sizes for cluster in plan])
  assert len(sizes) == 1543 and sizes.min() >= 100 and sizes.max() <= 799
  # The authors': 452.3 and 203.2.
  assert sizes.mean() == pytest.approx(452.3, abs=2)
  assert sizes.std() == pytest.approx(203.2, rel=0.05)
  for cluster, rows in zip(plan, rows_of(plan), strict=True):
    assert cluster.total == counts[cluster.classes].sum()
    assert 0 <= cluster.total - rows < 800


def test_tiny_imagenet_is_ten_clusters_of_390_clients():
  labels = shuffled_labels(500, 200), shuffled_labels(50, 200)
  train, test = divide(
    *labels,
    num_clients=390,
    num_classes=200,
    class_clusters=10,
    max_client_size=400,
  )
  sizes = np.array([len(rows) for rows in train])
  # The docstring of the authors: 251.98 and 87.56.
  assert sizes.mean() == pytest.approx(252, abs=3)
  assert sizes.std() == pytest.approx(87.6, rel=0.1)
  assert sizes.min() >= 100 and sizes.max() < 400
  # Disjoint clusters of 20 classes: whoever shares one class shares all.
  owned = class_counts(labels[0], train, 200) > 0
  owned |= class_counts(labels[1], test, 200) > 0
  together = (owned @ owned.T.astype(int)) > 0
  clusters = np.unique(together, axis=0)
  assert len(clusters) == 10 and (clusters.sum(0) == 1).all()
  assert ((clusters @ owned.astype(int) > 0).sum(1) == 20).all()
  rows = np.concatenate(train)
  assert len(np.unique(rows)) == len(rows) > 0.95 * 100_000
  # Testing: a tenth of the rows, and as large a share of them.
  few = np.array([len(rows) for rows in test])
  assert np.abs(few - sizes / 10).max() < 1
  assert len(np.unique(np.concatenate(test))) == few.sum()


def test_rows_are_dealt_by_hand():
  labels = np.array([3, 0, 1, 0, 3, 2, 1, 0, 3, 3])
  plan = [
    Cluster(np.array([0, 1]), np.array([2, 2]), 5),
    Cluster(np.array([3]), np.array([3]), 4),
    Cluster(np.array([2]), np.array([], int), 1),
  ]
  rng = np.random.default_rng(0)
  parts = Semantic().deal(plan, labels, rng)
  assert [len(rows) for rows in parts] == [2, 2, 3]
  for rows, own in zip(parts, [[0, 1], [0, 1], [3]], strict=True):
    assert {*labels[rows]} <= {*own}
  firsts = {tuple(Semantic().deal(plan, labels, rng)[2]) for _ in range(30)}
  assert len(firsts) > 10
  # Twice the rows: the same shares of them, rounded down.
  parts = Semantic().deal(plan, np.r_[labels, labels], rng)
  assert [len(rows) for rows in parts] == [4, 4, 6]


def one_by_one(total, least, drawn):
  """Return the sizes by a loop that follows the paper's rule."""
  sizes, left = [], total
  for size in drawn:
    if left <= least or size > left:
      return sizes
    sizes.append(int(size))
    left -= size
  return sizes


@pytest.mark.parametrize('total', [0, 3, 9, 10, 11, 25, 100, 1234])
def test_sizes_are_drawn_until_too_little_is_left(total):
  for seed in range(200 if total < 100 else 20):
    got = draw_sizes(total, 3, 9, np.random.default_rng(seed))
    drawn = np.random.default_rng(seed).integers(3, 9, total // 3)
    assert got.tolist() == one_by_one(total, 3, drawn)


@pytest.mark.parametrize(
  ('num_classes', 'changes'),
  [(62, {'class_families': LETTERS}), (200, {'class_clusters': 10}), (10, {})],
)
def test_the_quick_sizes_give_ten_clients(num_classes, changes):
  labels = shuffled_labels(1000 // num_classes, num_classes)
  sizes = {'min_client_size': 40, 'max_client_size': 160}
  for seed in range(2):
    train, _ = divide(
      labels,
      labels,
      num_clients=10,
      num_classes=num_classes,
      **sizes,
      **changes,
      seed=seed,
    )
    assert len(train) == 10


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'class_families': (10, 26)}, r'class_families: got \(10, 26\), .* to 10'),
    ({'class_families': (4, 6)}, 'class_clusters: got 5, expected from 1 to 4'),
    ({'class_clusters': 0}, 'class_clusters: got 0'),
    (
      {'min_client_size': 800},
      'min_client_size: got 800, expected from 1 to 799',
    ),
    ({'min_client_size': 0}, 'min_client_size: got 0'),
    (
      {'num_clients': 100},
      'num_clients: got 100, expected a number that comes out .*: in 500 draws '
      'of sizes from 100 to 799 came 15 to 27 clients, 19 the most often. '
      'Choices: 19. Likely cause: ',
    ),
  ],
)
def test_sentences(monkeypatch, changes, message):
  monkeypatch.setattr(semantic, 'TRIES', 500)
  labels = shuffled_labels(1000, 10)
  with pytest.raises(BadInput, match=message):
    divide(labels, labels[::5], **changes)
