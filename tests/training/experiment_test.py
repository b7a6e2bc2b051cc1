"""From a config to clients, task and stages, and what is logged."""

import re

import jax
import numpy as np
import pytest
from helpers import make_data, make_task, refused
from small_runs import settings_of

from configs import common, digits, fedbabu_cifar10
from fedjax_pfl import algorithms
from fedjax_pfl.core.algorithm import as_aggregated
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data import Images, load_dataset, transforms
from fedjax_pfl.data.images import make_dataset
from fedjax_pfl.settings import parse_config, replace
from fedjax_pfl.training import build_data as module
from fedjax_pfl.training.build import (
  build_experiment,
  build_stages,
  build_task,
  peek_shape,
)
from fedjax_pfl.training.build_data import build_data


def test_shapes_are_enough_to_know_the_method(compiled):
  experiment = build_experiment(settings_of())
  # Moving arrays to the device goes by this name; nothing else is compiled.
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}
  assert experiment.rounds == 16 and experiment.cohort_size == 5


def test_quick_has_a_stand_in_and_logs_it(tmp_path):
  logged = []
  settings = settings_of(fedbabu_cifar10, 'quick', data_dir=str(tmp_path))
  experiment = build_experiment(settings, logged.append)
  assert 'synthetic images of its shape replace it' in logged[0]
  assert 'accuracies are not those of cifar10' in logged[0]
  assert experiment.train.x.shape == (1000, 32, 32, 3)
  assert 'synthetic' in experiment.dataset.name


PARTS = [
  {'partition': 'iid'},
  {'partition': 'dirichlet', 'dirichlet_beta': 0.5},
  {'partition': 'unbalanced', 'size_step': 5.0},
  {'test_partition': 'whole'},
  {'test_partition': 'independent', 'test_shards_per_client': 10},
  {'test_partition': 'iid'},
]


def test_padding_and_fingerprint_of_every_partition_are_logged():
  all_logged = []
  for changes in [{}, *PARTS]:
    logged = []
    experiment = build_experiment(settings_of(**changes), logged.append)
    assert experiment.test.count.shape == (20,)
    for split, line in zip(('training', 'testing'), logged, strict=True):
      assert re.match(
        rf'digits, {split}: 20 clients, [\d,]+ examples, .*; '
        r'padding \d+\.\d %; partition [0-9a-f]{12}$',
        line,
      )
    all_logged.append(logged)
  training, testing = all_logged[0]
  assert training.startswith('digits, training: 20 clients, 1,442 examples')
  assert testing.startswith('digits, testing: 20 clients, 355 examples')
  assert len({training for training, _ in all_logged}) == 4
  assert len({testing for _, testing in all_logged}) == 7 - 1  # two are iid
  assert len({tuple(logged) for logged in all_logged}) == 7


def test_clients_that_are_tested_on_a_split_of_their_training_images():
  logged = []
  experiment = build_experiment(
    settings_of(test_partition='split'), logged.append
  )
  train, test = experiment.train, experiment.test
  assert logged[1].startswith(
    'digits, testing, on held-out training examples: 20 clients, '
  )
  # One pool, on the device once.
  assert test.x is train.x and test.y is train.y
  assert int(train.count.sum() + test.count.sum()) == len(train.y) == 1442
  rows = [
    {*np.asarray(row[:size]).tolist()}
    for data in (train, test)
    for row, size in zip(data.index, data.count, strict=True)
  ]
  assert len(set().union(*rows)) == 1442


def test_clients_that_lack_examples_are_logged():
  logged = []
  experiment = build_experiment(
    settings_of(partition='dirichlet', dirichlet_beta=0.02), logged.append
  )
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


def test_the_argument_after_the_colon():
  message = refused(lambda: common.base('quik'))
  assert "config argument: got 'quik'" in message
  assert 'Choices: quick (did you mean quick?)' in message


def test_clients_may_adapt_on_half_of_their_tests():
  experiment = build_experiment(settings_of())
  assert experiment.eval_data == (experiment.train, experiment.test)
  settings = replace(experiment.settings, adapt_on='test_half')
  support, query = experiment._replace(settings=settings).eval_data
  size = int(experiment.test.count[3])
  assert support.count[3] == size // 2
  both = np.r_[support.index[3, : size // 2], query.index[3, : -(-size // 2)]]
  np.testing.assert_array_equal(
    np.sort(both), np.sort(experiment.test.index[3, :size])
  )


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      {'batch_size': 71},
      "batch_size: got '71, while 6 of 20 clients have so many examples or "
      "fewer (the smallest has 71)', expected two batches or more",
    ),
    (
      {'num_clients': 355, 'partition': 'iid', 'batch_size': 4},
      'Choices: a batch_size of at most 3, fewer clients',
    ),
  ],
)
def test_a_client_that_fills_one_batch_is_refused_before_compiling(
  compiled, changes, words
):
  changes = {'algorithm': 'per_fedavg', 'views': ('initial',), **changes}
  message = refused(lambda: build_experiment(settings_of(**changes)))
  assert words in message
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}


def test_clients_without_examples_are_no_reason_to_refuse():
  (stage,) = algorithms.load('per_fedavg').build(
    make_task(), algorithms.load('per_fedavg').HParams()
  )
  stage.validate_clients(make_data((0, 51, 0, 500)))
  refused(lambda: stage.validate_clients(make_data((0, 50, 0, 500))))


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
def test_the_head_begins_as_the_config_says():
  settings = parse_config(settings_of(head_init='similar', head_bias='zero'))
  head = build_task(settings, (8, 8, 1), 10).init(jax.random.key(0))['head']
  norms = np.linalg.norm(head['kernel'], axis=0)  # [Y]
  np.testing.assert_allclose(norms, 1, rtol=1e-5)
  assert not head['bias'].any()


@pytest.mark.parametrize(
  ('fraction', 'logged'),
  [(0.05, ['server: 72 of the 1,442 training examples']), (0.0, [])],
)
def test_a_server_with_data_and_without(fraction, logged):
  lines = []
  experiment = build_experiment(
    settings_of(server_data_fraction=fraction), lines.append
  )
  assert [line for line in lines if line.startswith('server')] == logged
  post_aggregate = experiment.stages[-1].algorithm.post_aggregate
  assert (post_aggregate is as_aggregated) == (not logged)


def test_a_server_whose_share_is_no_example(compiled):
  message = refused(
    lambda: build_experiment(settings_of(server_data_fraction=1e-4))
  )
  assert (
    'server_data_fraction: got 0.0001, expected 0, or at least 1/1442'
    in message
  )
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}


def test_views_follow_from_the_epochs_of_finetuning():
  build_experiment(settings_of(finetune__epochs=(1, 3), views=('finetuned_1',)))


def test_an_algorithm_that_is_not_there():
  message = refused(lambda: algorithms.load('fedavgg'))
  assert '(did you mean fedavg?)' in message


def test_fewer_examples_keep_their_share_of_tests():
  experiment = build_experiment(settings_of(max_train_examples=500))
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


BLOCKS = slice(None), slice(None)
MIXED = [np.random.default_rng(0).permutation(size) for size in (40, 20)]


@pytest.mark.parametrize(
  'orders',
  [BLOCKS, (BLOCKS[0], MIXED[1]), (MIXED[0], BLOCKS[1])],
  ids=['both', 'training', 'tests'],
)
def test_fewer_examples_of_a_sorted_set_are_of_every_class(orders):
  """Image folders lie class by class, Tiny-ImageNet's in training alone."""
  whole = labelled(*orders)
  cut = module.first_examples(whole, 8)
  for images, every, number in (
    (cut.train, whole.train, 2),
    (cut.test, whole.test, 1),
  ):
    assert np.bincount(images.y).tolist() == [number] * 4
    for label in range(4):
      own = every.x[every.y == label][:number]
      np.testing.assert_array_equal(images.x[images.y == label], own)
  # An iid partition has the same rows as of the first images: another key.
  assert cut.fingerprint != whole.fingerprint
  assert module.first_examples(whole, 40) is whole


def test_fewer_examples_of_a_mixed_set_are_the_first_ones():
  whole = labelled(*MIXED)
  cut = module.first_examples(whole, 8)
  for images, every, number in (
    (cut.train, whole.train, 8),
    (cut.test, whole.test, 4),
  ):
    np.testing.assert_array_equal(images.x, every.x[:number])
    np.testing.assert_array_equal(images.y, every.y[:number])
  assert len(np.unique(cut.test.y)) < 4  # as it was, and as stored runs have it
  assert cut.fingerprint == whole.fingerprint


def test_inputs_of_another_recipe_and_size(monkeypatch):
  changes = {
    'dataset': 'tiny_imagenet',
    'preprocessing': 'fedconcat',
    'quick': True,
  }
  settings = settings_of(fedbabu_cifar10, 'quick', **changes)
  settings = parse_config(settings)
  assert peek_shape(settings) == ((32, 32, 3), 200)
  settings = replace(settings, dataset='digits', preprocessing='unit')
  assert peek_shape(settings) == ((8, 8, 1), 10)
  settings = replace(settings, model='convnet3')
  task = build_task(settings, (8, 8, 1), 10)
  assert task.augment is task.normalise  # nothing is augmented
  x = np.full((1, 8, 8, 1), 51, np.uint8)
  np.testing.assert_allclose(task.augment(x, jax.random.key(0)), 0.2)
  found = transforms.find_recipe('digits')._replace(side=4)
  monkeypatch.setattr(module, 'find_recipe', lambda *names: found)
  dataset, train, *_ = build_data(
    parse_config(settings_of()), lambda text: None
  )
  assert train.x.shape == (1442, 4, 4, 1)
  plain = load_dataset('digits')
  assert dataset.fingerprint != plain.fingerprint
  # Every pixel of a half is a mean of four to sixteen.
  means = plain.train.x.reshape(-1, 4, 2, 4, 2, 1).mean((2, 4))
  assert abs(means - train.x).mean() < 20
