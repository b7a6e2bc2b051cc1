"""Predictions of a run and of an exported file: one by one, and in a batch."""

import hospitals
import numpy as np
import pytest
from helpers import read_rows, refused
from PIL import Image

import fedjax_pfl as pfl
from fedjax_pfl.analysis.export import export
from fedjax_pfl.analysis.predict import TOGETHER, predict_folder
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model, save_model

pytestmark = pytest.mark.usefixtures('quick_compiler')
CLIENT = 'hospital3'


def quiet(text):
  pass


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return hospitals.write(tmp_path_factory.mktemp('data'))


@pytest.fixture(scope='module', params=['running', 'batch'])
def run(request, folder, tmp_path_factory, quick_compiler):
  """Return the directory of a run, its experiment, and its statistics."""
  changes = {'data_dir': str(folder)}
  if request.param == 'batch':  # of own images the default is 'running'
    changes['norm_statistics'] = 'batch'
  experiment = pfl.build_experiment({**hospitals.CONFIG, **changes})
  workdir = tmp_path_factory.mktemp(request.param) / 'run'
  pfl.train(experiment, workdir)
  return workdir, experiment, request.param


def test_predictions_are_those_of_the_evaluation(run, folder, tmp_path):
  """Of the run and of its file; one by one, too, with running statistics."""
  workdir, experiment, statistics = run
  heard, place = [], experiment.data.names.index(CLIENT)
  test, file = experiment.test, tmp_path / 'model.npz'
  own = test.index[place, : test.count[place]]
  x, y = np.asarray(test.x[own]), np.asarray(test.y[own])
  found = pfl.predict(workdir, x, client=CLIENT, log=heard.append)
  labels = np.array([hospitals.CLASSES[label] for label in y])
  scores = run_dir.load_clients(workdir).scores['initial']
  assert (labels == found.labels).sum() == scores.correct[place]
  np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)
  assert (TOGETHER in heard) == (statistics == 'batch')
  export(workdir, CLIENT, '', file, heard.append, None)
  assert f'the model of client {CLIENT}, initial, with' in heard[-1]
  again = pfl.predict(file, x, log=quiet)
  assert again.labels == found.labels
  np.testing.assert_allclose(
    again.probabilities, found.probabilities, rtol=1e-5, atol=1e-6
  )
  alone = [pfl.predict(file, one, log=quiet).probabilities[0] for one in x[:3]]
  is_equal = np.array_equal(alone, again.probabilities[:3])
  assert is_equal == (statistics == 'running')


def test_a_folder_becomes_a_csv(run, folder, tmp_path):
  workdir, out = run[0], tmp_path / 'found.csv'
  root = folder / CLIENT
  predict_folder(workdir, root, out, CLIENT, '', quiet, None)
  rows = read_rows(out)
  assert list(rows[0]) == ['file', 'class', 'p_healthy', 'p_tumour']
  files = [root / row['file'] for row in rows]
  assert files == sorted(root.rglob('*.png'))
  x = np.stack([np.asarray(Image.open(file)) for file in files])
  want = pfl.predict(workdir, x, client=CLIENT, log=quiet)
  assert [row['class'] for row in rows] == want.labels
  shares = [[float(row[f'p_{name}']) for name in want.classes] for row in rows]
  np.testing.assert_allclose(shares, want.probabilities, atol=1e-6)


@pytest.mark.parametrize('how', ['all', 'client'])
def test_rows_of_a_table_are_scaled_as_in_training(tmp_path, how):
  """The tests of a hospital, as its file has them, get the run's own score."""
  workdir, model, file, out = (
    tmp_path / name for name in ('run', 'm.npz', 'rows.csv', 'found.csv')
  )
  config = {'dataset': 'heart', 'partition': 'natural', 'num_clients': 4}
  config |= {'standardise': how, 'model': 'linear', 'views': ('initial',)}
  config |= {'rounds': 2, 'batch_size': 8, 'lr_milestones': ()}
  pfl.train(pfl.build_experiment(config), workdir)
  export(workdir, 'va', '', model, quiet, None)
  data = pfl.load_dataset('heart')
  (x, y), is_va = data.test, data.clients[1] == 3
  lines = [data.columns, *x[is_va].astype(str)]
  file.write_text('\n'.join(map(','.join, lines)))
  right = run_dir.load_clients(workdir).scores['initial'].correct[3]
  for source, client in ((workdir, 'va'), (model, '')):
    found = pfl.predict(source, x[is_va], client=client, log=quiet)
    assert sum(np.array(found.labels) == y[is_va].astype(str)) == right
    predict_folder(source, file, out, client, '', quiet, None)
    assert [row['class'] for row in read_rows(out)] == found.labels
    out.unlink()
  asked = lambda: pfl.predict(workdir, x, client='server', log=quiet)
  if how == 'client':
    assert 'a client, by whose scale' in refused(asked)


def test_what_is_refused(run, tmp_path):
  workdir, x, file = run[0], np.zeros((2, 8, 8), np.uint8), tmp_path / 'm.npz'

  def words_of(source, images=x, **which):
    return refused(lambda: pfl.predict(source, images, log=quiet, **which))

  assert 'hospital10' in words_of(workdir, client='hospital9')
  (tmp_path / 'm.onnx').write_bytes(b'x')
  assert 'm.onnx, with a model for other' in words_of(tmp_path / 'm.onnx')
  assert 'uint8 [N, 8, 8, 1]' in words_of(workdir, x / 255, client=CLIENT)
  assert 'uint8 [N, 8, 8, 1]' in words_of(workdir, x[:, :5], client=CLIENT)
  export(workdir, CLIENT, '', file, quiet, None)
  assert f' or {CLIENT}, which ' in words_of(file, client='hospital1')
  params, about = load_model(file)
  del params['head']
  save_model(file, params, about)
  assert 'arrays that are not those of its model' in words_of(file)
  del about['task']
  save_model(file, params, about)
  assert 'without' in words_of(file)


def test_images_are_normalised_without_a_key():
  task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=2)
  assert task.normalise(np.full((1, 8, 8, 1), 255, np.uint8)).max() == 1
