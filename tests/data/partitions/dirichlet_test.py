"""Random proportions of every class, the same for training and testing."""

import math

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions.dirichlet import Dirichlet


def divide(train, test, num_clients=20, num_classes=10, **settings):
  return partition(
    'dirichlet',
    train,
    test,
    num_clients=num_clients,
    num_classes=num_classes,
    **settings,
  )


def test_rows_are_cut_at_the_rounded_cumulative_proportions_by_hand():
  # Class 0 has 5 rows: 0.3 and 0.8 of them are 1.5 and 4, cut at 2 and 4;
  # class 1 has 2: all for the last client, though its shares sum up to 0.9.
  labels = np.array([0, 1, 0, 0, 1, 0, 0])
  plan = np.array([[0.3, 0.5, 0.2], [0.0, 0.0, 0.9]])
  rng = np.random.default_rng(0)
  indices = Dirichlet().deal(plan, labels, rng)
  assert [np.bincount(labels[i], minlength=2).tolist() for i in indices] == [
    [2, 0],
    [2, 0],
    [1, 2],
  ]
  check_partition(indices, 7)
  firsts = {tuple(Dirichlet().deal(plan, labels, rng)[0]) for _ in range(30)}
  assert len(firsts) > 5  # shuffled: not the same rows every time


def test_testing_has_the_proportions_of_training():
  train, test = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)
  indices = divide(train, test, dirichlet_beta=0.3)
  a, b = (
    class_counts(y, rows)
    for y, rows in zip((train, test), indices, strict=True)
  )
  # A part lies between two rounded borders: each off by half an example.
  assert np.abs(a / 500 - b / 100).max() <= 1 / 500 + 1 / 100
  assert np.abs(a / 500 - b[::-1] / 100).max() > 0.1


@pytest.mark.parametrize(('beta', 'deviation'), [(1.0, 50), (0.5, 70)])
def test_sizes_of_cifar100(beta, deviation):
  """100 classes of 500: a part has mean 5 and variance 500^2 var(p)."""
  train, test = shuffled_labels(500, 100), shuffled_labels(100, 100)
  indices = divide(
    train, test, num_clients=100, num_classes=100, dirichlet_beta=beta
  )
  sizes = np.array([len(rows) for rows in indices[0]])
  assert sizes.mean() == 500
  assert sizes.std() == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize('beta', [5e-324, 1e-3, 1e5, 1.7e308])
def test_every_beta_ends_and_deals_every_example_once(beta):
  train = shuffled_labels((120, 99, 101, 100, 7, 143, 50, 100, 100, 0), 10)
  indices = divide(train, train[::3], dirichlet_beta=beta)
  check_partition(indices[0], len(train))
  check_partition(indices[1], len(train[::3]))
  sizes = np.array([len(rows) for rows in indices[0]])
  if beta < 1:
    assert (sizes == 0).sum() >= 5  # at least ten of twenty clients at 0
  else:
    assert np.ptp(sizes) <= 10


@pytest.mark.parametrize('beta', [0, -1.0, math.inf, math.nan])
def test_a_bad_beta_is_a_sentence(beta):
  labels = shuffled_labels(10, 10)
  with pytest.raises(BadInput) as caught:
    divide(labels, labels, dirichlet_beta=beta)
  message = str(caught.value)
  assert message.startswith(
    f'dirichlet_beta: got {beta!r}, expected a finite number'
  )
  assert 'Choices: 1.0, 0.5, 0.1' in message and 'Likely cause: ' in message
