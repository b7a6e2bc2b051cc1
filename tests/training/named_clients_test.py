"""Clients and classes keep the names that folders and files give them."""

import hospitals
import numpy as np
import pytest
from hospitals import CLASSES, CONFIG, HOSPITALS

from fedjax_pfl.analysis.export import export
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.results.page.render import render
from fedjax_pfl.results.runs.run import are_same_clients, extremes
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.training.build import build_experiment
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


def test_report_and_export_have_them(finished, tmp_path):
  page = render([finished])
  for name in (*HOSPITALS, *CLASSES):
    assert name in page
  words = extremes(finished)
  assert (
    words.startswith('initial: lowest hospital') and ' highest hosp' in words
  )
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
