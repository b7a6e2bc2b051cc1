"""One model of a run as a plain file, and ten lines that read it."""

import json
import subprocess
import sys
from collections import namedtuple

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused
from pages import code_of

import fedjax_pfl as pfl
from fedjax_pfl.algorithms import fedrod
from fedjax_pfl.analysis.chosen_model import Owner, owner_of
from fedjax_pfl.analysis.export import export, export_model
from fedjax_pfl.analysis.model_header import HEAD, header, rule_of
from fedjax_pfl.core.types import Scores
from fedjax_pfl.data.transforms import find_recipe
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import parse_config, replace

pytestmark = pytest.mark.usefixtures('quick_compiler')
SERVER = Owner(None, '')
CONFIG = {
  'dataset': 'synthetic',
  'model': 'simple_cnn',
  'conv_impl': 'lax',  # compiles in half the time
  'num_clients': 4,
  'max_train_examples': 80,
  'rounds': 1,
  'local_epochs': 1,
  'batch_size': 20,
  'learning_rate': 0.05,
  'views': ('initial',),
  'eval_views': (),
}


@pytest.fixture(scope='module')
def cnn_run(tmp_path_factory, quick_compiler):
  """Return the experiment and the directory of a finished run."""
  workdir = tmp_path_factory.mktemp('cnn') / 'run'
  experiment = pfl.build_experiment(CONFIG)
  pfl.train(experiment, workdir)
  return experiment, workdir


def play_docs(folder, images):
  """Run the lines of the page where this package cannot be imported."""
  code = code_of('docs/howto/export.md')[0]
  lines = [line for line in code.splitlines() if line]
  assert sum(not line.startswith('import') for line in lines) == 12
  np.save(folder / 'images.npy', images)
  program = (
    'import sys; sys.modules["fedjax_pfl"] = None\n'
    f'{code}\nprint(x.tolist())\n'
    'assert not {"jax", "flax", "torch", "tensorflow"} & {*sys.modules}'
  )
  command = [sys.executable, '-c', program]
  done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  names, logits = done.stdout.splitlines()
  return names, np.array(json.loads(logits))


def rows_of(experiment, client):
  """Return the images of a client's tests, and their labels."""
  data = helpers.client_of(experiment.test, client)
  rows = data.index[: int(data.count)]
  return np.asarray(data.x[rows]), np.asarray(data.y[rows])


def test_the_lines_of_the_docs_predict_as_we_do(cnn_run, tmp_path):
  experiment, workdir = cnn_run
  logged = []
  path = tmp_path / 'model.npz'
  assert export(workdir, '1', '', path, logged.append, None) == path
  params, header = load_model(path)
  x, y = rows_of(experiment, 1)
  names, logits = play_docs(tmp_path, x)
  inputs = experiment.task.normalise(x, None)
  ours = jax.jit(experiment.task.logits)(params, inputs, jnp.ones(len(x)))
  np.testing.assert_allclose(logits, ours, atol=1e-4)
  assert names == str([f'{label}' for label in np.argmax(ours, 1)])
  correct = int((logits.argmax(1) == y).sum())
  assert header['test_correct'] == correct and header['test_count'] == len(y)
  assert header['test_accuracy'] == pytest.approx(100 * correct / len(y))
  assert correct == run_dir.load_clients(workdir).scores['initial'].correct[1]
  assert f'{path}: the model of client 1, initial, with ' in logged[-1]


def test_the_header_names_model_data_and_run(cnn_run, tmp_path):
  experiment, workdir = cnn_run
  path = export(workdir, 'server', '', tmp_path / 'm.npz', print, None)
  params, header = load_model(path)
  helpers.assert_same_bits(
    params, load_model(workdir / 'model' / 'global.npz')[0]
  )
  recipe = find_recipe('synthetic')
  expected = {
    'model_settings': {'num_classes': 10, 'widths': [6, 16, 120, 84]},
    'rule': {'name': 'network', 'text': 'logits = network(x)'},
    'batch_statistics': False,
    'image_shape': [16, 16, 1],
    'class_names': [str(number) for number in range(10)],
    'image_mean': [*recipe.mean],
    'image_std': [*recipe.std],
    'run': 'run',
    'data': experiment.data_id,
    'test_count': len(experiment.dataset.test.y),
  }
  words = ['model', 'algorithm', 'dataset', 'seed', 'round', 'client', 'view']
  shown = ' '.join(str(header[word]) for word in words)
  assert shown == 'simple_cnn fedavg synthetic 0 1 server global'
  assert {name: header[name] for name in expected} == expected
  assert str(workdir.parent) not in json.dumps(header)


def test_the_header_has_what_adapters_and_predictions_need(cnn_run):
  experiment, workdir = cnn_run
  (scores,) = run_dir.load_clients(workdir).scores.values()
  one = Scores(scores.correct[0], scores.count[0])

  def header_of(**fields):
    own = experiment.with_settings(replace(experiment.settings, **fields))
    return header(own, workdir, Owner(0, 'initial'), {'head': 1}, one)

  about = header_of(algorithm='knn_per')
  assert about['hp']['lam'] == 0.5 and 'lora_rank' not in about
  about = header_of(algorithm='partial', lora_rank=8, lora_alpha=32.0)
  assert (about['lora_rank'], about['lora_alpha']) == (8, 32.0)
  assert 'kernel + lora_alpha / lora_rank lora_a' in about['rule']['text']


def put(experiment, workdir, owner, path):
  """Return the model that was written, its header, and what was logged."""
  logged = []
  export_model(experiment, workdir, owner, path, logged.append)
  return *load_model(path), logged[-1]


def test_a_personal_model_is_the_one_that_the_run_evaluated(tiny_run, tmp_path):
  experiment, workdir = tiny_run
  owner = Owner(0, 'finetuned')
  params, header, _ = put(experiment, workdir, owner, tmp_path / 'm.npz')
  saved, _ = load_model(workdir / 'model' / 'finetuned_client0.npz')
  helpers.assert_close(params, saved)
  assert (header['client'], header['view']) == (0, 'finetuned')
  scores = run_dir.load_clients(workdir).scores['finetuned']
  assert header['test_correct'] == scores.correct[0]


# ---- models that are not one network


def test_class_means_are_beside_the_parameters(tiny_run, tmp_path):
  experiment, workdir = tiny_run
  owner = Owner(2, 'templates_euclidean')
  tree, header, _ = put(experiment, workdir, owner, tmp_path / 'm.npz')
  assert header['rule']['name'] == 'network, euclidean'
  assert header['batch_statistics']
  x, y = rows_of(experiment, 2)
  x, model = experiment.task.normalise(x, None), tree['model']
  features = jax.jit(experiment.task.features)
  f = features(model['params'], x, jnp.ones(len(x)))
  gaps = np.linalg.norm(np.asarray(f)[:, None] - model['means'], axis=-1)
  gaps = np.where(model['present'], gaps, np.inf)
  assert (gaps.argmin(1) == y).sum() == header['test_correct']


def test_the_rule_of_a_view_that_is_no_network():
  """Nor does a view of one's own, without a rule, pass for a network."""
  assert rule_of({'head': 1}) == {'name': 'network', 'text': HEAD['network']}
  both = rule_of(fedrod.Both({}, {}))['text']
  assert both.startswith(
    'logits = network(x) + the head of personal_head/ on f'
  )
  own = namedtuple('Own', 'params')({})
  assert rule_of(own)['text'].startswith('as `predict` in')


# ---- bad input


@pytest.mark.parametrize(
  ('client', 'view', 'output', 'words'),
  [
    ('4', '', 'new.npz', "client: got '4', expected a client of the run, 0"),
    ('server', 'initial', 'new.npz', 'the server has one model'),
    ('1', '', 'old.npz', 'it is there already'),
    ('1', '', 'model.safetensors', 'the ending of another format'),
  ],
)
def test_what_cannot_be_exported_is_a_sentence(
  cnn_run, tmp_path, client, view, output, words
):
  old = tmp_path / 'old.npz'
  old.write_bytes(b'mine')
  call = cnn_run[1], client, view, tmp_path / output, pytest.fail, None
  assert words in refused(export, *call)
  assert [*tmp_path.iterdir()] == [old] and old.read_bytes() == b'mine'


def test_what_this_run_has_not_got(cnn_run, tmp_path):
  experiment, workdir = cnn_run
  (stage,) = experiment.stages
  algorithm = stage.algorithm._replace(global_model=None)
  headless = experiment._replace(stages=(stage._replace(algorithm=algorithm),))
  for own, owner, words in (
    (experiment, Owner(1, 'finetund'), 'did you mean finetuned?'),
    (headless, SERVER, 'expected a client: fedavg has no global'),
  ):
    path = tmp_path / 'm.npz'
    assert words in refused(export_model, own, workdir, owner, path, print)
  assert not path.exists()


def test_the_view_of_a_client_is_that_of_the_result():
  chosen = {**CONFIG, 'validation_fraction': 0.2, 'select': 'validation'}
  settings = parse_config(chosen)
  result = {'validation': {'view': 'finetuned_1'}}
  assert owner_of(settings, result, '3', '') == Owner(3, 'finetuned_1')
  assert owner_of(settings, result, '3', 'initial') == Owner(3, 'initial')
