"""Experiments on one's own arrays, up to where they would be compiled."""

import numpy as np
import pytest
from helpers import refused

import fedjax_pfl as pfl
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.keys import make_data_of

K, P = 5, 100
Y = np.arange(P) % 4
X = np.random.default_rng(0).integers(0, 256, (P, 8, 8), np.uint8)
SPLIT = np.where(np.arange(P) % 10 < 8, 'train', 'test')
# Client 0 has most, and the last rows belong to the last client alone.
CLIENTS = np.searchsorted([60, 70, 80, 90], np.arange(P), side='right')
SIZES = [[48, 8, 8, 8, 8], [12, 2, 2, 2, 2]]


def store(file, order=slice(None), clients=CLIENTS):
  arrays = {'images': X[order], 'labels': Y[order], 'split': SPLIT[order]}
  np.savez(file, clients=clients[order], **arrays)
  return str(file)


@pytest.fixture
def config(tmp_path):
  """Return a config for a file with clients and a split."""
  return {
    'dataset': 'npz',
    'data_dir': store(tmp_path / 'own.npz'),
    'partition': 'natural',
    'num_clients': K,
    'model': 'convnet3',
    'batch_size': 10,
    'rounds': 1,
  }


def sizes(config, **changes):
  experiment = pfl.build_experiment({**config, **changes})
  return [
    np.asarray(data.count).tolist()
    for data in (experiment.train, experiment.test)
  ]


def test_the_fingerprint_is_of_content_and_clients(config, tmp_path):
  """Another file with the same arrays is the same data; other owners not."""
  want = pfl.build_experiment(config).data_id
  moved = {**config, 'data_dir': store(tmp_path / 'other.npz')}
  assert pfl.build_experiment(moved).data_id == want
  assert make_data_of(print)(parse_config(moved)) == want
  store(tmp_path / 'other.npz', clients=K - 1 - CLIENTS)
  changed = pfl.build_experiment(moved).data_id
  assert changed != want and changed.split('-')[0] == want.split('-')[0]


def test_fewer_examples_are_the_first_of_every_client(config):
  """Half of the 80; a client with 2 tests keeps one."""
  order = np.random.default_rng(1).permutation(P)
  store(config['data_dir'], order)
  assert sizes(config) == SIZES
  config['max_train_examples'] = 40
  assert sizes(config) == [[24, 4, 4, 4, 4], [6, 1, 1, 1, 1]]
  train = pfl.build_experiment(config).train
  rows = order[SPLIT[order] == 'train']
  for k, (own, count) in enumerate(zip(train.index, train.count, strict=True)):
    want = X[rows[CLIENTS[rows] == k]][: int(count)]
    np.testing.assert_array_equal(train.x[own[: int(count)], ..., 0], want)
  config['partition'] = 'iid'  # rows of the same numbers, but other images
  found = set()
  for clients in (CLIENTS, CLIENTS[::-1]):
    store(config['data_dir'], clients=clients)
    found.add(pfl.build_experiment(config).data_id)
  assert len(found) == 2


def test_a_file_without_tests(config):
  np.savez(config['data_dir'], images=X, labels=Y, clients=CLIENTS)
  assert 'test_partition=split' in refused(pfl.build_experiment, config)
  config['test_partition'] = 'split'
  assert sizes(config) == SIZES
  each = {**config, 'partition': 'iid', 'num_clients': P}
  assert f'none of {P} clients keeps' in refused(pfl.build_experiment, each)
  config['eval_global_model'] = True
  message = refused(pfl.build_experiment, config)
  assert 'no test examples of its own' in message
