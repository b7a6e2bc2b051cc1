"""From a config to clients, task and stages, and what is logged."""

import re

import jax
import numpy as np
import pytest
from helpers import refused
from small_runs import settings_of

from configs import digits, fedbabu_cifar10
from fedjax_pfl.core.algorithm import as_aggregated
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data import Images
from fedjax_pfl.data.images import make_dataset
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import (
  build_experiment,
  build_stages,
  build_task,
  peek_shape,
)
from fedjax_pfl.training.build_data import first_examples

# Moving arrays to the device goes by these names; nothing else is compiled.
MOVES = {'jit(stage)', 'jit(convert_element_type)'}


def build(**changes):
  """Return an experiment on the digits, and what was logged."""
  logged = []
  return build_experiment(settings_of(**changes), logged.append), logged


def test_quick_has_a_stand_in_and_logs_it(tmp_path):
  """Its images are of the size, and of the recipe, of the real ones."""
  built = []
  for changes in ({}, {'preprocessing': 'fedconcat'}):
    changes |= {'shards_per_client': 20, 'model': 'convnet4'}
    changes |= {'dataset': 'tiny_imagenet', 'data_dir': str(tmp_path)}
    settings, logged = settings_of(fedbabu_cifar10, 'quick', **changes), []
    built.append(build_experiment(settings, logged.append))
    assert 'synthetic images of its shape replace it' in logged[0]
    assert 'accuracies are not those of tiny_imagenet' in logged[0]
    assert 'synthetic' in built[-1].dataset.name
  plain, scaled = built
  assert plain.train.x.shape == (1000, 64, 64, 3)
  assert scaled.train.x.shape == (1000, 32, 32, 3)
  assert peek_shape(scaled.settings) == ((32, 32, 3), 200)
  assert plain.dataset.fingerprint != scaled.dataset.fingerprint
  # Every pixel of a half is a mean of four to sixteen.
  means = np.asarray(plain.train.x).reshape(-1, 32, 2, 32, 2, 3).mean((2, 4))
  assert abs(means - scaled.train.x).mean() < 20


PARTS = [
  {},
  {'partition': 'iid'},
  {'partition': 'dirichlet', 'dirichlet_beta': 0.5},
  {'partition': 'unbalanced', 'size_step': 5.0},
  {'test_partition': 'whole'},
  {'test_partition': 'independent', 'test_shards_per_client': 10},
  {'test_partition': 'iid'},
  {'test_partition': 'split'},
]


def test_padding_and_fingerprint_of_every_partition_are_logged():
  all_logged = []
  for changes in PARTS:
    experiment, logged = build(**changes)
    assert experiment.test.count.shape == (20,)
    for split, line in zip(('training', 'testing'), logged, strict=True):
      assert re.match(
        rf'digits, {split}.*: 20 clients, [\d,]+ examples, .*; '
        r'padding \d+\.\d %; partition [0-9a-f]{12}$',
        line,
      )
    all_logged.append(logged)
  training, testing = all_logged[0]
  assert training.startswith('digits, training: 20 clients, 1,442 examples')
  assert testing.startswith('digits, testing: 20 clients, 355 examples')
  assert len({tuple(logged) for logged in all_logged}) == len(PARTS)
  # The last one: one pool, on the device once, and each image is used once.
  train, test = experiment.train, experiment.test
  assert 'testing, on held-out training examples: 20 clients, ' in logged[1]
  assert test.x is train.x and test.y is train.y
  assert int(train.count.sum() + test.count.sum()) == len(train.y) == 1442


def test_clients_that_lack_examples_are_logged():
  experiment, logged = build(partition='dirichlet', dirichlet_beta=0.02)
  no_train, no_test = (
    np.asarray(data.count) == 0 for data in (experiment.train, experiment.test)
  )
  assert 0 < no_train.sum() < no_test.sum() < 20
  assert logged[2:] == [
    f'Clients without training examples: {no_train.sum()} of 20; without test '
    f'examples: {no_test.sum()}; left out of all means: {no_test.sum()}. They '
    'are kept and counted.'
  ]
  assert (no_test | no_train).sum() == no_test.sum()


PER_FEDAVG = {'algorithm': 'per_fedavg', 'views': ('initial',)}


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      {**PER_FEDAVG, 'batch_size': 71},
      "batch_size: got '71, while 6 of 20 clients have so many examples or "
      "fewer (the smallest has 71)', expected two batches or more",
    ),
    (
      {**PER_FEDAVG, 'num_clients': 355, 'partition': 'iid', 'batch_size': 4},
      'Choices: a batch_size of at most 3, fewer clients',
    ),
    (
      {'server_data_fraction': 1e-4},
      'server_data_fraction: got 0.0001, expected 0, or at least 1/1442',
    ),
  ],
)
def test_what_the_data_do_not_allow_is_refused_before_compiling(
  compiled, changes, words
):
  assert words in refused(lambda: build(**changes))
  assert set(compiled) <= MOVES


def test_hyperparameters_reach_the_method():
  """FedBABU that updates everything uploads what FedAvg uploads."""

  def uploaded(method, **changes):
    settings = parse_config(settings_of(digits, method, **changes))
    task = build_task(settings, (8, 8, 1), 10)
    algorithm = build_stages(settings, task)[0].algorithm

    def upload(data, key):
      server = algorithm.init_server(key)
      down = algorithm.download(server, ())
      return algorithm.local_update(down, (), data, key)[1]

    shapes = [(1, 8, 8, 1), (1,), (1,), ()]
    one = ClientData(*(jax.ShapeDtypeStruct(s, 'int32') for s in shapes))
    return jax.eval_shape(upload, one, jax.eval_shape(jax.random.key, 0))

  fedavg = uploaded('fedavg')
  assert uploaded('fedbabu', hp__trainable='full') == fedavg
  assert uploaded('fedbabu')['head'] == {'bias': None, 'kernel': None}


@pytest.mark.long
def test_the_head_and_the_inputs_are_as_the_config_says():
  changes = {'head_init': 'similar', 'head_bias': 'zero'}
  settings = parse_config(settings_of(**changes, preprocessing='unit'))
  task = build_task(settings, (8, 8, 1), 10)
  head = task.init(jax.random.key(0))['head']
  norms = np.linalg.norm(head['kernel'], axis=0)  # [Y]
  np.testing.assert_allclose(norms, 1, rtol=1e-5)
  assert not head['bias'].any()
  assert task.augment is task.normalise  # nothing is augmented
  x = np.full((1, 8, 8, 1), 51, np.uint8)
  np.testing.assert_allclose(task.augment(x, jax.random.key(0)), 0.2)


@pytest.mark.parametrize(
  ('fraction', 'logged'),
  [(0.05, ['server: 72 of the 1,442 training examples']), (0.0, [])],
)
def test_a_server_with_data_and_without(fraction, logged):
  experiment, lines = build(server_data_fraction=fraction)
  assert [line for line in lines if line.startswith('server')] == logged
  post_aggregate = experiment.stages[-1].algorithm.post_aggregate
  assert (post_aggregate is as_aggregated) == (not logged)


# ---- fewer examples


def test_fewer_examples_keep_their_share_of_tests():
  experiment, _ = build(max_train_examples=500)
  assert len(experiment.dataset.train.y) == 500
  assert len(experiment.dataset.test.y) == round(500 / 1442 * 355)
  assert np.asarray(experiment.train.count).sum() <= 500


def labelled(train_order, test_order):
  """Return a set of 4 classes in blocks of 10 and 5, put in these orders."""
  splits = [
    Images(np.arange(4 * size)[order], np.repeat(np.arange(4), size)[order])
    for size, order in ((10, train_order), (5, test_order))
  ]
  return make_dataset('npz', *splits, num_classes=4)


BLOCKS = slice(None)
MIXED = [np.random.default_rng(0).permutation(size) for size in (40, 20)]


@pytest.mark.parametrize(
  'orders',
  [(BLOCKS, BLOCKS), (BLOCKS, MIXED[1]), (MIXED[0], BLOCKS), MIXED],
  ids=['sorted', 'training sorted', 'tests sorted', 'mixed'],
)
def test_fewer_examples_of_a_sorted_set_are_of_every_class(orders):
  """Image folders lie class by class, Tiny-ImageNet's in training alone.

  Of a mixed set they are the first ones, as stored runs have them.
  """
  whole, is_mixed = labelled(*orders), orders is MIXED
  cut = first_examples(whole, 8)
  for one, every, size in zip(cut[1:3], whole[1:3], (8, 4), strict=True):
    rows = np.arange(size)
    if not is_mixed:
      assert np.bincount(one.y).tolist() == [size // 4] * 4
      firsts = [np.flatnonzero(every.y == y)[: size // 4] for y in range(4)]
      rows = np.concatenate(firsts)
    assert {*zip(one.x.tolist(), one.y.tolist(), strict=True)} == {
      *zip(every.x[rows].tolist(), every.y[rows].tolist(), strict=True)
    }
  # An iid partition has the same rows as of the first images: another key.
  assert (cut.fingerprint == whole.fingerprint) == is_mixed
  assert first_examples(whole, 40) is whole
