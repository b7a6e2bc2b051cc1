"""Runs with a model, a loss, a metric and a partition of the user's own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import refused

import fedjax_pfl as pfl
from experiments import commandline
from fedjax_pfl.analysis.export import input_of
from fedjax_pfl.analysis.open_run import read_run, rebuild
from fedjax_pfl.report import page
from fedjax_pfl.report.text_table import table
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.keys import evaluation_key, run_key

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures('quick_compiler')
K, P, Y = 4, 96, 3
RNG = np.random.default_rng(0)
LABELS = np.arange(P) % Y
SPLIT = np.where(np.arange(P) % 4 == 3, 'test', 'train')
# A wave for each class, and words of which each class likes a third.
STEPS = np.arange(12)
WAVES = np.sin(
  STEPS * (0.4 + 0.5 * LABELS[:, None]) + RNG.uniform(0, 6, (P, 1))
)
INPUTS = {
  'Sensor': np.stack([WAVES, RNG.normal(size=WAVES.shape)], -1),
  'Text': RNG.integers(0, 4, (P, 5)) + 4 * LABELS[:, None],
}
CODE = """
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class Sensor(nn.Module):
  num_classes: int

  def setup(self):
    self.conv = nn.Conv(6, (5,))
    self.head = nn.Dense(self.num_classes)

  def features(self, x, mask):
    return nn.relu(self.conv(x)).mean(axis=1)

  def __call__(self, x, mask):
    return self.head(self.features(x, mask))


class Text(nnx.Module):
  def __init__(self, num_classes, rngs):
    self.embed = nnx.Embed(12, 6, rngs=rngs)
    self.head = nnx.Linear(6, num_classes, rngs=rngs)

  def features(self, x, mask):
    return 3 * self.embed(x).mean(axis=1)


def brier(logits, labels):
  wrong = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[-1])
  return (wrong**2).sum(-1)


def recall(logits, labels, mask):
  own = mask * (labels == 0)
  return (own * (logits.argmax(-1) == 0)).sum() / own.sum()


def strided(labels, num_clients, rng):
  first = rng.integers(num_clients)
  rows = np.arange(len(labels))
  return [
    rows[rows // 3 % num_clients == (first + client) % num_clients]
    for client in range(num_clients)
  ]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Return the present directory, which holds own.py and data."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'own.py').write_text(CODE)
  for name, inputs in INPUTS.items():
    np.savez(f'{name}.npz', inputs=inputs, labels=LABELS, split=SPLIT)
  return tmp_path


def config_of(name, method, **changes):
  return {
    'algorithm': method,
    'dataset': 'npz',
    'data_dir': f'{name}.npz',
    'model': f'own.py:{name}',
    'partition': 'own.py:strided',
    'num_clients': K,
    'client_fraction': 0.5,
    'rounds': 3,
    'local_epochs': 10,
    'batch_size': 6,
    'learning_rate': 0.3,
    'finetune.batch_size': 6,
    'finetune.epochs': (1,),
    **changes,
  }


def train(config, workdir='run'):
  return pfl.train(pfl.build_experiment(pfl.load_code(config)), workdir)


@pytest.mark.parametrize(
  ('model', 'method'),
  [
    ('Text', 'fedbabu'),
    pytest.param('Sensor', 'fedper', marks=pytest.mark.long),
    pytest.param('Sensor', 'fedbabu', marks=pytest.mark.long),
    pytest.param('Text', 'fedper', marks=pytest.mark.long),
  ],
)
def test_what_is_no_image_is_learnt(folder, model, method):
  views = 'initial', 'finetuned', 'templates_cosine'
  changes = {'views': views, 'rounds': 6, 'finetune.learning_rate': 0.1}
  result = train(config_of(model, method, **changes))
  for view in views[1:]:
    assert result['views'][view]['mean'] > 60, view  # guessing: 33
    # Sums are floats where inputs are whole numbers.
    loss = run_dir.load_clients('run').scores[view].loss
    assert loss.dtype == np.float32 and (loss % 1 > 0).all()
  params, about = pfl.load_model('run/model/finetuned_client0.npz')
  assert about['model'].startswith(f'own.py:{model}#')
  assert tuple(about['image_shape']) == INPUTS[model].shape[1:]
  assert params['head']['kernel'].shape == (6, Y)


def test_loss_metric_and_identity(folder):
  config = config_of(
    *('Text', 'fedavg'),
    loss='own.py:brier',
    metrics=('own.py:recall',),
    eval_global_model=True,
  )
  result = train(config)
  stored = run_dir.load_config('run')['config']
  assert stored['loss'].startswith('own.py:brier#')
  assert stored['metrics'][0].startswith('own.py:recall#')
  clients = run_dir.load_clients('run')
  own = clients.scores['finetuned'].own['recall']
  assert own.shape == (K,)
  want = float(np.mean(own[np.isfinite(own)]))
  assert result['views']['finetuned']['recall'] == pytest.approx(want)
  assert 0 <= result['global']['recall'] <= 1
  assert 'FedAvg, recall: initial ' in table([result])
  lines = run_dir.load_metrics('run')
  assert 'initial/recall' in lines[-1] and lines[-1]['loss'] < 2
  assert '>recall' in page.render(['run']).replace(' ', '')
  # Without running the file again: neither the page nor a key needs it.
  content = (folder / 'own.py').read_text()
  key = run_key('run')
  (folder / 'own.py').unlink()
  assert run_key('run') == key and page.render(['run'])
  before = (folder / 'run' / 'config.json').read_bytes()
  (folder / 'own.py').write_text(content + '# another line\n')
  message = refused(train, config)
  assert message.startswith("config: got {'partition': 'own.py:strided#")
  assert "where these are {'partition': 'own.py:strided#" in message
  assert 'cause: a file of your own code was changed' in message
  assert (folder / 'run' / 'config.json').read_bytes() == before
  changed = pfl.build_experiment(pfl.load_code(config)).settings
  edited = json.loads(before)
  edited['config'] |= {
    'model': changed.model.name, 'loss': changed.training.loss
  }  # fmt: skip
  (folder / 'other').mkdir()
  (folder / 'other' / 'config.json').write_text(json.dumps(edited))
  assert run_key('other') != key
  plain = evaluation_key(pfl.build_experiment(
    pfl.load_code({**config, 'metrics': ()})).settings)  # fmt: skip
  assert evaluation_key(changed) != plain


def test_the_code_of_the_page_fits_its_data(folder):
  """docs/own.md, word for word; the data are drawn."""
  text = (ROOT / 'docs' / 'own.md').read_text()
  blocks = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  code = [own for own in blocks if 'pfl.' not in own and 'savez' not in own]
  assert len(code) == 5 and len(blocks) == 7
  (folder / 'gait.py').write_text('\n'.join(code))
  scope = {'np': np, 'x': RNG.normal(size=(P, 128, 3)), 'labels': LABELS}
  scope |= {'y': LABELS, 'is_test': SPLIT == 'test'}
  (store,) = [own for own in blocks if 'savez' in own]
  exec(compile(store, 'own.md', 'exec'), scope)
  names = {'loss': 'brier', 'model': 'Gait', 'partition': 'by_class'}
  config = config_of('Text', 'fedavg', data_dir='gait.npz') | {
    field: f'gait.py:{name}' for field, name in names.items()
  }
  config['metrics'] = ('gait.py:recall', 'gait.py:brier_score')
  experiment = pfl.build_experiment(pfl.load_code(config))
  assert [*experiment.metrics] == ['recall', 'brier_score']
  np.savez('tokens.npz', inputs=RNG.integers(0, 5000, (P, 40)), labels=LABELS)
  config |= {'model': 'gait.py:Reviews', 'data_dir': 'tokens.npz'}
  config |= {'test_partition': 'split', 'loss': 'cross_entropy'}
  params = pfl.build_experiment(pfl.load_code(config)).task.is_head
  assert sorted(params) == ['embed', 'head']
  exec(compile(blocks[-1], 'own.md', 'exec'), notebook_scope(scope))


def notebook_scope(scope):
  """Return the names of the page's last example."""
  own = {
    name: pfl.load_code({'loss': f'gait.py:{name}'})['loss'].value
    for name in ('Gait', 'Reviews', 'brier', 'recall', 'by_class')
  }
  task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=3)
  fedavg = pfl.algorithm('fedavg')
  (stage,) = fedavg.build(task, fedavg.HParams())
  labels = {'y_train': LABELS, 'y_test': LABELS}
  return {**scope, **own, **labels, 'pfl': pfl, 'algorithm': stage.algorithm}


def given(**overrides):
  return lambda settings: commandline.replace_fields(settings, overrides)


def test_a_question_about_the_models_is_given_the_file_once_more(folder):
  experiment = pfl.build_experiment(pfl.load_code(config_of('Text', 'fedavg')))
  settings = experiment.settings
  run_dir.open_run(
    'run', pfl_config(settings), data=experiment.data_id, log=print
  ).close()
  names = {'model': 'own.py:Text', 'partition': 'own.py:strided'}
  read, data = read_run('run', print, given(**names))
  assert rebuild(read, data, print).data_id == experiment.data_id
  assert input_of(experiment) == {'input': 'x = the example as it is, int32'}
  read, data = read_run('run', print)
  message = refused(rebuild, read, data, print)
  assert '--config.model=own.py:Text' in message
  (folder / 'own.py').write_text(CODE + '\n')
  message = refused(read_run, 'run', print, given(**names))
  assert 'the file has changed since' in message


def test_a_token_beyond_the_table_stops_the_run(folder):
  with np.load('Text.npz') as file:
    arrays = dict(file)
  arrays['inputs'] = arrays['inputs'] + 10**6
  np.savez('Text.npz', **arrays)
  message = refused(train, config_of('Text', 'fedavg', rounds=1))
  assert 'NaN or infinity in rounds 1 to 1' in message
  assert 'or code of your own: 0 / 0, tokens beyond the table' in message


def pfl_config(settings):
  from fedjax_pfl.settings import to_config

  return to_config(settings)


REFUSED = {
  'a model for images': ({'model': 'convnet3'}, 'convnet3 for inputs of int32'),
  'a model for images, of floats': (
    {'model': 'convnet3', 'data_dir': 'Sensor.npz'},
    "model: got 'convnet3 for inputs of shape (",
  ),
  'a preprocessing': ({'preprocessing': 'unit'}, 'preprocessing: got '),
  'no function': ({'partition': 'own.py:CODE'}, 'a name that own.py defines'),
  'another kind': ({'partition': 'own.py:np'}, "partition: got 'module'"),
  'a model without its name': ({'model': 'own.py'}, 'a file without the name'),
  'a metric without its file': ({'metrics': ('recall',)}, 'metrics: got '),
  'a metric twice': (
    {'metrics': ('own.py:recall', './own.py:recall')},
    'functions of different names',
  ),
  'a mean for a loss': ({'loss': 'own.py:recall'}, 'loss: got '),
  'FedLC': (
    {'loss': 'own.py:brier', 'algorithm': 'fedlc'},
    "loss: got 'brier', expected cross_entropy with FedLC",
  ),
  'FedRS': (
    {'loss': 'own.py:brier', 'algorithm': 'fedrs'},
    'expected cross_entropy with FedRS',
  ),
  'noise for words': (
    {
      'algorithm': 'fedconcat',
      'hp': {'distributions': 'inferred', 'clusters': 2},
      'views': ('initial',),
    },
    'inputs that are whole numbers',
  ),
}


@pytest.mark.parametrize('case', REFUSED)
def test_sentence_for(folder, case, compiled):
  changes, words = REFUSED[case]
  before = sorted(folder.rglob('*'))
  assert words in refused(train, config_of('Text', 'fedavg', **changes))
  assert sorted(folder.rglob('*')) == before
  own = {'jit(stage)', 'jit(convert_element_type)', 'jit(_threefry_seed)'}
  assert set(compiled) <= own
