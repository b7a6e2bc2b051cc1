"""What all ways to divide examples have in common, and what they refuse.

Properties of every way, such as that no row is dealt twice, are in
properties/partitions_properties_test.py.
"""

import numpy as np
import pytest
from helpers import refused
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import PARTITIONS, fingerprint, partition
from fedjax_pfl.data.partition import split
from fedjax_pfl.data.partitions import dirichlet_capped, semantic
from fedjax_pfl.data.partitions.iid import iid

# Small settings of each way, for 4 clients and 10 classes.
SETTINGS = {
  'shards': {'shards_per_client': 5},
  'iid': {},
  'dirichlet': {'dirichlet_beta': 0.3},
  'unbalanced': {'shards_per_client': 5, 'group_size': 2, 'size_step': 20},
  'classes': {'classes_per_client': 8},
  'dirichlet_capped': {'dirichlet_beta': 0.3, 'dirichlet_min_size': 5},
  'pathological': {'shards_per_client': 5},
  'semantic': {
    'class_clusters': 2,
    'min_client_size': 20,
    'max_client_size': 100,
  },
  'natural': {},
}
DETERMINISTIC = ('pathological', 'natural')
every_way = pytest.mark.parametrize('name', PARTITIONS)


def divide(name, train, test, **settings):
  return partition(
    name,
    train,
    test,
    clients=tuple(np.arange(len(y)) * 3 // 5 % 4 for y in (train, test)),
    **{'num_clients': 4, 'num_classes': 10, **SETTINGS[name], **settings},
  )


@every_way
def test_the_seed_decides(name):
  labels = shuffled_labels(20, 10)
  prints = [
    fingerprint(divide(name, labels, labels, seed=seed)[0])
    for seed in (0, 0, 1)
  ]
  assert prints[0] == prints[1]
  assert (prints[1] == prints[2]) == (name in DETERMINISTIC)


@pytest.mark.parametrize(
  ('name', 'seed', 'prints'),
  [
    ('shards', 0, ('447329bc08fa', '764a7c7a24ee')),
    ('shards', 7, ('942ee77498a5', 'bf9f021c9e1e')),
    ('iid', 0, ('684c96583fe2', 'cbc06748bbe6')),
    ('iid', 7, ('4ed50ec69730', 'd0b305cc6983')),
  ],
)
def test_a_seed_means_the_same_for_ever(name, seed, prints):
  """Stored with the first version: results of a seed can be had again."""
  sizes = (120, 99, 101, 100, 87, 143, 50, 100, 100, 99)
  labels = shuffled_labels(sizes, 10, seed=5)
  got = divide(name, labels, labels[::3], num_clients=20, seed=seed)
  assert tuple(map(fingerprint, got)) == prints


@pytest.mark.parametrize(
  ('size', 'share', 'kept'),
  [(500, 0.2, 400), (10, 0.9, 1), (7, 0.2, 5), (1, 0.2, 0), (0, 0.2, 0)],
)
def test_a_split_rounds_training_down(size, share, kept):
  (own,), (test,) = split([np.arange(size)], share, np.random.default_rng(0))
  assert (len(own), len(test)) == (kept, size - kept)
  if size == 500:
    assert 100 < np.median(own) < 400 and 100 < np.median(test) < 400


@every_way
@pytest.mark.parametrize('way', ['independent', 'whole', 'iid'])
def test_the_division_for_testing_leaves_that_for_training(name, way):
  train, test = shuffled_labels(40, 10), shuffled_labels(20, 10, seed=1)
  same = divide(name, train, test)
  other = divide(
    name, train, test, test_partition=way, test_shards_per_client=10
  )
  assert fingerprint(same[0]) == fingerprint(other[0])
  # An iid test set is one division, whatever the training set's.
  assert (fingerprint(same[1]) == fingerprint(other[1])) == (name == way)


def test_a_test_set_divided_by_itself_into_other_shards():
  """Two classes for training; testing has its own, drawn apart."""
  train, test = shuffled_labels(50, 10), shuffled_labels(50, 10, seed=1)
  indices = divide(
    'shards',
    train,
    test,
    num_clients=10,
    shards_per_client=2,
    test_partition='independent',
    test_shards_per_client=10,
  )
  check_partition(indices[1], 500)
  in_train, in_test = (
    class_counts(y, rows) > 0
    for y, rows in zip((train, test), indices, strict=True)
  )
  assert in_train.sum(1).max() <= 2 and in_test.sum(1).mean() > 5
  assert class_counts(test, indices[1])[~in_train].sum() > 0.6 * 500


def test_the_whole_test_set_for_every_client_even_if_it_is_small():
  labels = shuffled_labels(20, 10)
  _, test = divide(
    'shards', labels, labels[:3], num_clients=20, test_partition='whole'
  )
  assert [rows.tolist() for rows in test] == [[0, 1, 2]] * 20


def test_iid_takes_equal_shares_of_shuffled_rows():
  indices = iid(np.zeros(103), 10, np.random.default_rng(0))
  assert [len(rows) for rows in indices] == [10] * 10
  assert len(np.unique(np.concatenate(indices))) == 100
  assert min(np.ptp(rows) for rows in indices) > 30


def test_fingerprint_is_stable_and_sees_order_and_borders():
  rows = [np.array([3, 1]), np.array([2])]
  assert fingerprint(rows) == '94c51cb4bcea'
  assert fingerprint([r.astype(np.int32) for r in rows]) == '94c51cb4bcea'
  others = [
    [np.array([1, 3]), np.array([2])],
    [np.array([3]), np.array([1, 2])],
    [np.array([2]), np.array([3, 1])],
  ]
  assert len({fingerprint(other) for other in (rows, *others)}) == 4


def test_labels_may_be_lists_and_small_numbers_and_tests_absent():
  labels, sizes = np.arange(8) % 4, {'num_clients': 2, 'num_classes': 4}
  want, _ = partition('iid', labels, labels, **sizes)
  for given in (labels.tolist(), labels.astype(np.uint8)):
    train, _ = partition('iid', given, [], test_partition='split', **sizes)
    both = zip(train, want, strict=True)
    assert all(set(rows) <= set(own) for rows, own in both)


# (partition, changes of SETTINGS for 100 and 50 examples, words)
SENTENCES = [
  ('shard', {}, r'partition: got .*did you mean shards\?'),
  ('shards', {'num_clients': 0}, 'num_clients: got 0, expected from 1 to 50'),
  ('iid', {'num_clients': 51}, '100 for training, 50 for testing'),
  ('iid', {'num_clients': 101, 'test_partition': 'whole'}, 'from 1 to 100'),
  ('iid', {'num_clients': 101, 'test_partition': 'split'}, 'from 1 to 100'),
  ('iid', {'num_clients': 2.0}, 'num_clients: got 2.0, expected a whole'),
  ('iid', {'num_classes': 9}, 'num_classes: got 9.*labels go from 0 to 9'),
  ('iid', {'num_classes': 4.0}, 'num_classes: got 4.0, expected a whole'),
  ('iid', {'seed': -1}, 'seed: got -1, expected a whole number, 0 or more'),
  (
    'iid',
    {'test_partition': 'split', 'test_fraction': 20},
    'test_fraction: got 20, expected a share .*a percentage',
  ),
  ('iid', {'test_partition': 'hole'}, r'did you mean whole\?'),
  (
    'iid',
    {'test_partition': 'independent', 'test_shards_per_client': 7},
    'test_shards_per_client: got 7, expected a positive multiple of 5',
  ),
  ('shards', {'shards_per_client': 0}, 'shards_per_client: got 0'),
  (
    'shards',
    {'shards_per_client': 7},
    'multiple of 5: 4 clients.*Choices: 5, 10, 15',
  ),
  ('pathological', {'shards_per_client': 3}, r'got 3, .*Choices: 5, 10'),
  (
    'dirichlet',
    {'shards_per_client': 5},
    "got 'shards_per_client', .* Choices: dirichlet_beta",
  ),
  ('dirichlet', {'dirichlet_beta': 0}, 'got 0, expected a finite number'),
  ('dirichlet', {'dirichlet_beta': -1.0}, 'got -1.0, expected a finite'),
  ('dirichlet', {'dirichlet_beta': np.inf}, '^dirichlet_beta: got inf'),
  ('dirichlet_capped', {'dirichlet_beta': np.nan}, 'dirichlet_beta: got nan'),
  ('dirichlet_capped', {'seed': 2**32}, 'seed: got 4294967296, expected from'),
  (
    'dirichlet_capped',
    {'dirichlet_min_size': 26},
    'dirichlet_min_size: got 26, expected at most 25, the mean .*4 clients sh',
  ),
  (
    'dirichlet_capped',
    {'dirichlet_beta': 0.01, 'num_clients': 20},
    'got 5, expected at most 0, .* 30 draws with beta 0.01 and seed 0: 20 cl',
  ),
  (
    'dirichlet_capped',
    {'dirichlet_beta': 5e-324},
    'dirichlet_min_size: got 5, expected at most 0, .* in 30 draws',
  ),
  ('classes', {'seed': 2**32}, 'seed: got 4294967296, expected from 0 to 42'),
  ('classes', {'classes_per_client': 11}, 'got 11, .*from 1 to 10'),
  ('classes', {'classes_per_client': 0}, 'classes_per_client: got 0'),
  (
    'classes',
    {'classes_per_client': 2},
    'num_clients: got 4, .* seed 0 and 2 of 10 .* none holds class 5.* 10, wh',
  ),
  (
    'unbalanced',
    {'num_clients': 15},
    'num_clients: got 15, expected an even number',
  ),
  (
    'unbalanced',
    {'group_size': 3},
    'divisor of the 4 clients. Choices: 1, 2, 4',
  ),
  ('unbalanced', {'group_size': 0}, '^group_size: got 0'),
  (
    'unbalanced',
    {'size_step': 51},
    'size_step: got 51, expected from 0 to 50: the smallest clients have 25 - ',
  ),
  ('unbalanced', {'size_step': -1}, 'size_step: got -1, expected from 0'),
  ('unbalanced', {'group_size': 4, 'size_step': np.nan}, 'size_step: got nan'),
  (
    'unbalanced',
    {'shards_per_client': 2},
    'multiple of 5: 2 pairs of clients x shards must be a multiple of 10',
  ),
  (
    'unbalanced',
    {'shards_per_client': 1000, 'size_step': 0},
    'shards_per_client: got 1000, expected at most 25, the examples of the',
  ),
  (
    'semantic',
    {'class_families': (10, 26)},
    r'class_families: got \(10, 26\), .* to 10',
  ),
  (
    'semantic',
    {'class_families': (4, 6), 'class_clusters': 5},
    'class_clusters: got 5, expected clusters from 1 to 4',
  ),
  ('semantic', {'class_clusters': 0}, 'class_clusters: got 0'),
  ('semantic', {'min_client_size': 100}, 'got 100, .* 1 to below 100'),
  ('semantic', {'min_client_size': 0}, '^min_client_size: got 0'),
  (
    'semantic',
    {'num_clients': 50},
    'got 50, expected a number that .* draws came 0 to 2 clients, 1 the most',
  ),
]


@pytest.mark.parametrize(('name', 'changes', 'message'), SENTENCES)
def test_sentences(monkeypatch, name, changes, message):
  for module in (dirichlet_capped, semantic):
    monkeypatch.setattr(module, 'TRIES', 30)
  settings = {'num_clients': 4, 'num_classes': 10, **SETTINGS.get(name, {})}
  labels = shuffled_labels(10, 10), shuffled_labels(5, 10)
  with pytest.raises(BadInput, match=message):
    partition(name, *labels, **{**settings, **changes})


LABELS = np.arange(8) % 4


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'train_labels': LABELS / 1}, "train_labels: got 'float64[8]', expected"),
    ({'test_labels': np.eye(4, dtype=int)}, "test_labels: got 'int64[4, 4]'"),
    ({'train_labels': LABELS[:0]}, "train_labels: got 'no labels', expected"),
    ({'test_labels': LABELS[:0]}, "test_partition: got 'same', expected split"),
  ],
)
def test_sentences_for_labels(changes, words):
  given = {'train_labels': LABELS, 'test_labels': LABELS, **changes}
  sizes = {'num_clients': 2, 'num_classes': 4}
  assert refused(lambda: partition('iid', **given, **sizes)).startswith(words)
