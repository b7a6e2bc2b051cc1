"""Long tails under a partition."""

import numpy as np
from helpers import refused

from fedjax_pfl.data.images import Images, make_dataset
from fedjax_pfl.data.used_examples import sizes, thinned
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build_data import build_data


def test_sizes_are_those_of_cifar_lt():
  """Cui et al.: 5,000 first images and 50 last ones at a factor of 100."""
  known = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
  assert sizes(np.full(10, 5000), 100).tolist() == known
  assert sizes(np.array([9, 2, 50]), 1000).tolist() == [9, 1, 1]


def test_the_first_examples_of_a_class_stay_with_their_clients():
  y = np.tile(np.arange(2), 10)
  train, test = Images(np.arange(20), y), Images(np.arange(4), y[:4])
  whole = make_dataset('any', train, test, 2)._replace(
    clients=(np.arange(20), np.arange(4))
  )
  cut = thinned(whole, 5)
  assert cut.train.x.tolist() == [0, 1, 2, 3, *range(4, 20, 2)]
  assert cut.clients[0].tolist() == cut.train.x.tolist()
  assert cut.test is test and cut.fingerprint != whole.fingerprint
  assert thinned(whole, 1) is whole
  tokens = whole._replace(train=Images(np.zeros((9, 3)), np.zeros((9, 3))))
  assert 'imbalance_factor: got 5, expected 1' in refused(thinned, tokens, 5)


def test_any_partition_deals_the_tail():
  base = {'dataset': 'digits', 'num_clients': 5, 'imbalance_factor': 20.0}
  for own in (
    {'partition': 'iid'},
    {'partition': 'dirichlet'},
    {'partition': 'iid', 'test_partition': 'merged'},
  ):
    data = build_data(parse_config(base | own), [].append)
    counts = np.bincount(np.asarray(data.train.y))
    assert counts[0] >= 18 * counts[9], (own, counts)
    assert (np.diff(counts) <= 0).all()
  assert refused(parse_config, base | {'imbalance_factor': 0.01}).startswith(
    'imbalance_factor: got 0.01, expected a number, 1 or more'
  )
