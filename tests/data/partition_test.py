"""What all ways to divide examples have in common, and what they refuse.

Properties of every way, such as that no row is dealt twice, are in
properties/partitions_properties_test.py.
"""

import numpy as np
import pytest
from labels import shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.partition import (
  FIELDS,
  PARTITIONS,
  SAME_CLIENTS,
  fingerprint,
  partition,
)
from fedjax_pfl.data.partitions import dirichlet_capped, semantic

SIZES = {'num_clients': 4, 'num_classes': 10}
# Small settings of each way, for 4 clients and 10 classes.
SETTINGS = {
  'shards': {'shards_per_client': 5},
  'dirichlet': {'dirichlet_beta': 0.3},
  'unbalanced': {'shards_per_client': 5, 'group_size': 2, 'size_step': 20},
  'classes': {'classes_per_client': 8},
  'dirichlet_capped': {'dirichlet_beta': 0.3, 'dirichlet_min_size': 5},
  'pathological': {'shards_per_client': 5},
  'pathological_uneven': {'classes_per_client': 5},
  'semantic': {
    'class_clusters': 2,
    'min_client_size': 20,
    'max_client_size': 100,
  },
}
# For 20 clients.
SMALL = {'unbalanced': {'size_step': 2}, 'semantic': {'min_client_size': 30}}
every_way = pytest.mark.parametrize('name', PARTITIONS)


def divide(name, train, test, **settings):
  return partition(
    name,
    train,
    test,
    clients=tuple(np.arange(len(y)) * 3 // 5 % 4 for y in (train, test)),
    **{**SIZES, **SETTINGS.get(name, {}), **settings},
  )


@every_way
def test_the_seed_decides_and_testing_leaves_training(name):
  train, test = shuffled_labels(40, 10), shuffled_labels(20, 10, seed=1)
  same, again, other = (divide(name, train, test, seed=s) for s in (0, 0, 1))
  assert fingerprint(same[0]) == fingerprint(again[0])
  differs = fingerprint(same[0]) != fingerprint(other[0])
  assert differs == (name not in SAME_CLIENTS)
  for way in ('independent', 'whole', 'iid'):
    how = {'test_partition': way, 'test_shards_per_client': 10}
    found = divide(name, train, test, **how)
    assert fingerprint(same[0]) == fingerprint(found[0])
    # An iid test set is one division, whatever the training set's.
    assert (fingerprint(same[1]) == fingerprint(found[1])) == (name == way)


@pytest.mark.parametrize(
  ('name', 'prints'),
  [
    ('shards', ('447329bc08fa', '764a7c7a24ee')),
    ('iid', ('684c96583fe2', 'cbc06748bbe6')),
    ('dirichlet', ('1aa96977aaf4', '221d5c2308d1')),
    ('unbalanced', ('c2185aac3800', 'eca0526f900a')),
    ('classes', ('ea2a48ba7409', 'a50e49bbf9fe')),
    ('dirichlet_capped', ('7acb57ccd9bc', '538a2267e535')),
    ('pathological', ('fddca7c3bc79', 'd3ca0320f143')),
    ('pathological_uneven', ('4f8d3db6985c', '8139fe9590e7')),  # PFLlib's rows
    ('semantic', ('bfc2cafcd0f8', 'fa937a18253b')),
  ],
)
def test_a_seed_means_the_same_for_ever(name, prints):
  """Stored: the results of a seed can be had again."""
  sizes = (120, 99, 101, 100, 87, 143, 50, 100, 100, 99)
  labels = shuffled_labels(sizes, 10, seed=5)
  got = divide(name, labels, labels[::3], num_clients=20, **SMALL.get(name, {}))
  assert tuple(map(fingerprint, got)) == prints


@every_way
def test_a_setting_has_one_default(name):
  for setting, default in (PARTITIONS[name].__kwdefaults__ or {}).items():
    assert FIELDS[setting].default == default


def test_fingerprint_is_stable_and_sees_order_and_borders():
  rows = [np.array([3, 1]), np.array([2])]
  assert fingerprint(rows) == '94c51cb4bcea'
  assert fingerprint([r.astype(np.int32) for r in rows]) == '94c51cb4bcea'
  others = [[[1, 3], [2]], [[3], [1, 2]], [[2], [3, 1]]]
  found = {fingerprint([*map(np.array, other)]) for other in others}
  assert len(found - {'94c51cb4bcea'}) == 3


# (partition, a setting, its value, words): of 100 and 50 examples.
SENTENCES = [
  ('iid', 'num_clients', 51, '51, .* 1 to 50.*100 for training, 50 for test'),
  ('iid', 'num_classes', 9, 'num_classes: got 9.*labels go from 0 to 9'),
  ('iid', 'seed', -1, 'seed: got -1, expected a whole number, 0 or more'),
  ('iid', 'test_partition', 'hole', r'did you mean whole\?'),
  ('shards', 'shards_per_client', 7, 'of 5: 4 clients.*Choices: 5, 10, 15'),
  ('dirichlet', 'dirichlet_beta', 0, 'dirichlet_beta: got 0, .* above 0'),
  ('dirichlet', 'shards_per_client', 5, "got 'shards_.* Choices: dirichlet_be"),
  ('dirichlet_capped', 'dirichlet_min_size', 26, 'at most 25, the mean .*4 cl'),
  ('dirichlet_capped', 'dirichlet_beta', 5e-324, 'most 0, .* in 30 draws with'),
  ('classes', 'seed', 2**32, 'seed: got 4294967296, expected from 0 to 42'),
  ('classes', 'classes_per_client', 2, '2 of 10 .* none holds class 5.* 10, w'),
  ('pathological_uneven', 'classes_per_client', 4, 'multiple of 5: 4 clients'),
  ('pathological_uneven', 'num_clients', 40, 'share the 10 training exa'),
  ('unbalanced', 'num_clients', 15, 'num_clients: got 15, expected an even'),
  ('unbalanced', 'group_size', 3, 'divisor of the 4 clients. Choices: 1, 2, 4'),
  ('unbalanced', 'size_step', 51, 'from 0 to 50: the smallest clients have 25'),
  ('semantic', 'class_families', (10, 26), r'got \(10, 26\), .* to 10'),
  ('semantic', 'min_client_size', 100, 'got 100, .* 1 to below 100'),
  ('semantic', 'num_clients', 50, 'draws came 0 to 2 clients, 1 the most'),
]


@pytest.mark.parametrize(('name', 'field', 'value', 'message'), SENTENCES)
def test_sentences(monkeypatch, name, field, value, message):
  for module in (dirichlet_capped, semantic):
    monkeypatch.setattr(module, 'TRIES', 30)
  settings = {**SIZES, **SETTINGS.get(name, {})}
  labels = shuffled_labels(10, 10), shuffled_labels(5, 10)
  with pytest.raises(BadInput, match=message):
    partition(name, *labels, **{**settings, field: value})
