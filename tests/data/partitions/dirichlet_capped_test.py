"""Random proportions with a cap and a least size.

The golden cases compare the rows with those of the authors' code.
"""

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions import Sizes, dirichlet_capped
from fedjax_pfl.data.partitions.dirichlet_capped import (
  DirichletCapped,
  cut_class,
)

CIFAR = np.full(10, 5000)


def divide(train, test, **settings):
  small = {'num_clients': 20, 'num_classes': 10, 'dirichlet_beta': 0.3}
  return partition('dirichlet_capped', train, test, **{**small, **settings})


def test_a_class_is_cut_by_hand():
  # The second is full: 0.2, 0.3 and 0 of 0.5 are left; 3.6 is cut at 3.
  shares = np.array([0.2, 0.5, 0.3, 0.0])
  held = np.array([0, 10, 9, 0])
  assert cut_class(shares, held, 9, mean=10).tolist() == [3, 3, 9]
  assert cut_class(shares, np.array([12, 10, 10, 0]), 9, mean=10) is None
  assert cut_class(np.full(4, np.nan), held, 9, mean=10) is None


@pytest.mark.parametrize(
  ('num_clients', 'beta', 'seed', 'tries', 'sizes'),
  [
    (40, 0.1, 1, 2, (25, 1272, 3134)),
    (100, 0.1, 0, 13, (14, 455.5, 1595)),
    (200, 0.1, 0, 52, (11, 211.5, 1393)),
  ],
)
def test_sizes_of_the_authors(num_clients, beta, seed, tries, sizes):
  """CIFAR-10; with seed 1, 200 clients need 1,166 tries, 1.7 s of a core."""
  class_sizes = Sizes(num_clients, CIFAR, seed)
  plan = DirichletCapped(beta).draw(class_sizes, np.random.default_rng(0))
  held = plan.counts.sum(0)
  assert (plan.tries, held.min(), np.median(held), held.max()) == (
    tries,
    *sizes,
  )


def test_testing_has_the_shares_that_came_out_for_training():
  train, test = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)
  indices = divide(train, test, dirichlet_min_size=50)
  for labels, rows in zip((train, test), indices, strict=True):
    check_partition(rows, len(labels))
  a, b = (
    class_counts(y, rows)
    for y, rows in zip((train, test), indices, strict=True)
  )
  assert a.sum(1).min() >= 50
  assert np.abs(a / 500 - b / 100).max() <= 1 / 100
  assert a.max() > 200


def test_a_class_nobody_trains_on_is_shared_equally():
  train = shuffled_labels([50] * 9 + [0], 10)
  test = shuffled_labels(40, 10)
  indices = divide(train, test, num_clients=4, dirichlet_min_size=1)
  assert class_counts(test, indices[1])[:, 9].tolist() == [10] * 4


def test_a_draw_that_finds_nobody_to_give_to_is_drawn_again():
  """Of two clients one takes all of nearly every class, until it is full."""
  train = shuffled_labels(20, 10)
  settings = {
    'num_clients': 2,
    'dirichlet_beta': 0.002,
    'dirichlet_min_size': 1,
  }
  for seed in range(5):
    indices, _ = divide(train, train, **settings, seed=seed)
    check_partition(indices, 200)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'dirichlet_beta': 0},
      'dirichlet_beta: got 0, expected a finite number above 0',
    ),
    ({'seed': 2**32}, 'seed: got 4294967296'),
    (
      {'dirichlet_min_size': 11},
      'dirichlet_min_size: got 11, expected at most 10: 20 clients sh',
    ),
    (
      {'dirichlet_beta': 0.01, 'dirichlet_min_size': 5},
      'dirichlet_min_size: got 5, expected at most 0: in 30 draws with beta '
      '0.01 and '
      'seed 0, the smallest of 20 clients never had more',
    ),
    (
      {'dirichlet_beta': 5e-324},
      'dirichlet_min_size: got 10, expected at most 0: in 30 draws',
    ),
  ],
)
def test_sentences(monkeypatch, changes, message):
  monkeypatch.setattr(dirichlet_capped, 'TRIES', 30)
  labels = shuffled_labels(20, 10)
  with pytest.raises(BadInput, match=message):
    divide(labels, labels, **changes)
