"""Data of the user's own: clients and classes keep their names and rows."""

import hospitals
import numpy as np
import pytest
from helpers import refused
from hospitals import CLASSES, CONFIG, HOSPITALS

import fedjax_pfl as pfl
from fedjax_pfl.analysis.export import export
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.results.page.render import render
from fedjax_pfl.results.runs import run
from fedjax_pfl.results.runs.run import are_same_clients, extremes
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.keys import make_data_of
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return hospitals.write(tmp_path_factory.mktemp('data'))


@pytest.fixture(scope='module')
def finished(folder, tmp_path_factory, quick_compiler):
  workdir = tmp_path_factory.mktemp('named') / 'run'
  train(build_experiment({**CONFIG, 'data_dir': str(folder)}), workdir)
  return workdir


def test_names_go_with_their_examples(finished):
  clients = run_dir.load_clients(finished)
  assert clients.names.tolist() == ['hospital1', 'hospital3', 'hospital10']
  assert clients.unseen.names.tolist() == ['hospital2']
  assert clients.class_names.tolist() == CLASSES
  for one in (clients, clients.unseen):
    held = one.train_classes.sum(1) + one.test_classes.sum(1)
    assert held.tolist() == [2 * (5 + int(name[8:])) for name in one.names]


def test_report_and_export_have_them(finished, tmp_path, monkeypatch):
  page = render([finished])
  for name in (*HOSPITALS, *CLASSES):
    assert name in page
  words = extremes(finished)
  assert words.startswith('initial: hospital1 ') and ' %, hospital10 ' in words
  assert '\nunseen, initial: hospital2 ' in words
  monkeypatch.setattr(run, 'MOST_NAMED', 2)
  words = extremes(finished)
  assert words.startswith('initial: lowest hospital') and ' highest h' in words
  out = tmp_path / 'model.npz'
  export(finished, 'hospital10', '', out, lambda text: None, None)
  about = load_model(out)[1]
  assert (about['client'], about['client_name']) == (2, 'hospital10')
  assert about['class_names'] == CLASSES


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'unseen_clients': 'hospital9'}, 'a client of the data'),
    ({'unseen_clients': ('hospital1', 'hospital1')}, 'each once'),
    ({'partition': 'iid', 'num_clients': 4}, 'partition=natural'),
    ({'unseen_clients': HOSPITALS}, 'a cohort has at least one'),
  ],
)
def test_names_that_are_refused(folder, changes, words):
  config = {**CONFIG, 'data_dir': str(folder), **changes}
  with pytest.raises(BadInput, match=words):
    build_experiment(config)


def test_drawn_clients_have_no_names(folder):
  changes = {'partition': 'iid', 'num_clients': 4, 'unseen_clients': 0}
  changes['test_partition'] = 'split'
  config = {**CONFIG, 'data_dir': str(folder), **changes}
  assert build_experiment(config).data.names == ()


def test_clients_chosen_by_name_are_the_same_with_every_seed():
  assert are_same_clients(CONFIG)
  assert not are_same_clients({**CONFIG, 'unseen_clients': 1})


def test_names_of_arrays(tmp_path):
  names, labels = np.array(['b10', 'b9', 'a', 'b9']), np.array([*'yxxy'])
  arrays = {'images': np.zeros((4, 4, 4), np.uint8), 'labels': labels}
  np.savez(tmp_path / 'a.npz', clients=names, **arrays)
  dataset = load_dataset('npz', data_dir=f'{tmp_path / "a.npz"}')
  assert dataset.client_names == ['a', 'b9', 'b10']
  assert dataset.class_names == ['x', 'y']
  assert dataset.clients[0].tolist() == [2, 1, 0, 1]
  assert dataset.train.y.tolist() == [1, 0, 0, 1]


# ---- experiments on one's own arrays, up to where they would be compiled

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
