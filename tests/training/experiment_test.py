"""From a config to clients, task and stages, and what is logged."""

import re

import numpy as np
import pytest
from helpers import refused
from small_runs import make_experiment, make_settings, settings_of

from configs import fedbabu_cifar10
from fedjax_pfl.algorithms import fedavg
from fedjax_pfl.data.images import Images, make_dataset
from fedjax_pfl.data.used_examples import first_examples
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.build_data import build_data
from fedjax_pfl.training.build_method import peek_shape
from fedjax_pfl.training.outline import idle_failures

# Moving arrays to the device goes by these names; nothing else is compiled.
MOVES = {'jit(stage)', 'jit(convert_element_type)'}


def test_quick_has_a_stand_in_and_logs_it(tmp_path):
  """Its images are of the size, and of the recipe, of the real ones."""
  built = []
  for changes in ({}, {'preprocessing': 'fedconcat'}):
    changes |= {'shards_per_client': 20, 'model': 'convnet4'}
    changes['conv_impl'] = 'lax'  # traced in less time
    changes |= {'dataset': 'tiny_imagenet', 'data_dir': str(tmp_path)}
    settings, logged = settings_of(fedbabu_cifar10, 'quick', **changes), []
    built.append(build_experiment(settings, logged.append))
    assert 'accuracies are not those of tiny_imagenet' in logged[0]
  plain, scaled = built
  assert plain.train.x.shape == (1000, 64, 64, 3)
  assert scaled.train.x.shape == (1000, 32, 32, 3)
  assert peek_shape(scaled.settings.data)[:2] == ((32, 32, 3), 200)


def test_a_run_says_whether_it_tests_with_the_statistics_of_a_batch():
  by_batch = make_experiment()
  assert by_batch.tests_by_batch
  running = parse_config(make_settings(norm_statistics='running'))
  outline = by_batch.outline._replace(settings=running)
  assert not by_batch._replace(outline=outline).tests_by_batch
  no_norm = by_batch.task._replace(norm_leaves={'kernel': False})
  assert not by_batch._replace(task=no_norm).tests_by_batch


def test_a_method_is_built_on_its_model_and_on_an_outline(monkeypatch):
  """Once each: time and failures go around the former when they are known."""
  build, tasks = fedavg.build, []

  def counted(task, hp):
    tasks.append(task)
    return build(task, hp)

  monkeypatch.setattr(fedavg, 'build', counted)
  timed = {'client_speeds': 'lognormal', 'dropout_rate': 0.1}
  build_experiment(settings_of(arg='fedavg', **timed))
  outline, model = tasks
  assert model.loss is not outline.loss


PARTS = [
  {},
  {'partition': 'dirichlet', 'dirichlet_beta': 0.5},
  {'test_partition': 'whole'},
  {'test_partition': 'independent', 'test_shards_per_client': 10},
  {'test_partition': 'split'},
  {'test_partition': 'merged', 'test_fraction': 0.25},
]


def test_padding_and_fingerprint_of_every_partition_are_logged():
  all_logged, idle = [], 'partition=dirichlet does not use shards_per_client='
  for changes in PARTS:
    logged = []
    data = build_data(parse_config(settings_of(**changes)), logged.append)
    if 'partition' in changes:
      assert logged.pop(0).startswith(idle)
    assert data.splits['test'].count.shape == (20,)
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


def test_what_the_data_do_not_allow_is_refused_before_compiling(compiled):
  changes = {'algorithm': 'per_fedavg', 'views': ('initial',)}
  settings = settings_of(**changes, batch_size=71)
  message = refused(build_experiment, settings)
  assert (
    "batch_size: got '71, while 5 of 20 clients have so many examples or "
    "fewer (the smallest has 70)', expected two batches or more"
  ) in message
  assert set(compiled) <= MOVES


def test_failures_that_cannot_happen_are_named():
  """All clients take part in FedDBE's first round."""
  changes = {'algorithm': 'feddbe', 'dropout_rate': 0.2}
  settings = parse_config(settings_of(**changes, views=('initial',)))
  logged = []
  stages = build_experiment(settings, logged.append).stages
  said = 'In the rounds of mean all clients take part, without dropout_rate.'
  assert said in logged
  assert idle_failures(settings, stages[1:]) == ''


# ---- fewer examples


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
  'orders', [(BLOCKS, MIXED[1]), MIXED], ids=['training sorted', 'mixed']
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


def test_fewer_examples_of_clients_are_of_every_class():
  """Client 0 has 10, 10, 8 and 2 images of the classes."""
  clients = np.repeat([0, 1, 0, 1], [28, 2, 2, 8]), np.arange(20) % 2
  whole = labelled(BLOCKS, BLOCKS)._replace(name='npz', clients=clients)
  cut = first_examples(whole, 20)
  counts = [np.bincount(cut.train.y[cut.clients[0] == k]) for k in (0, 1)]
  assert [own.tolist() for own in counts] == [[5, 5, 4, 1], [0, 0, 1, 4]]
