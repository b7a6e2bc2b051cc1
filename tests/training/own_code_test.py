"""Runs with a model, a loss, a metric and a partition of the user's own.

They are those of docs/howto/own_*.md; the data are drawn.
"""

from functools import partial

import numpy as np
import pytest
from helpers import long, refused
from pages import code_of

import fedjax_pfl as pfl
from experiments import commandline
from fedjax_pfl.analysis.open_run import read_run, rebuild
from fedjax_pfl.results.page import render as page
from fedjax_pfl.results.tables.result_table import table
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import to_config
from fedjax_pfl.training.keys import run_key, training_key

pytestmark = pytest.mark.usefixtures('quick_compiler')
BLOCKS = code_of('docs/howto/own_model.md') + code_of('docs/howto/own_loss.md')
(STORE,) = [block for block in BLOCKS if 'savez' in block]
CODE = '\n'.join(
  block for block in BLOCKS if 'pfl.' not in block and block != STORE
).replace('5000, 32', '12, 32')  # a smaller table
K, P, Y = 4, 96, 3
RNG = np.random.default_rng(0)
LABELS = np.arange(P) % Y
IS_TEST = np.arange(P) % 4 == 3
# A wave for each class, and words of which each class likes a third.
WAVES = np.sin(
  np.arange(128) * (0.4 + 0.5 * LABELS[:, None]) + RNG.uniform(0, 6, (P, 1))
)
INPUTS = {
  'Gait': np.stack([WAVES, *RNG.normal(size=(2, P, 128))], -1),
  'Reviews': RNG.integers(0, 4, (P, 5)) + 4 * LABELS[:, None],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Return the present directory, which holds own.py and data."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'own.py').write_text(CODE)
  for name, inputs in INPUTS.items():
    exec(STORE, {'np': np, 'x': inputs, 'y': LABELS, 'is_test': IS_TEST})
    (tmp_path / 'gait.npz').rename(f'{name}.npz')
  return tmp_path


def config_of(name, method, **changes):
  return {
    'algorithm': method,
    'dataset': 'npz',
    'data_dir': f'{name}.npz',
    'model': f'own.py:{name}',
    'partition': 'own.py:by_class',
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


def build(config):
  return pfl.build_experiment(pfl.load_code(config))


def train(config, workdir='run'):
  return pfl.train(build(config), workdir)


@pytest.mark.parametrize(
  ('model', 'method'), [('Reviews', 'fedbabu'), long('Gait', 'fedper')]
)
def test_what_is_no_image_is_learnt(folder, model, method):
  views = 'initial', 'finetuned', 'templates_cosine'
  changes = {'views': views, 'eval_views': (), 'rounds': 6}
  changes['finetune.learning_rate'] = 0.1
  result = train(config_of(model, method, **changes))
  for view in views[1:]:
    assert result['views'][view]['mean'] > 60, view  # guessing: 33
  params, about = pfl.load_model('run/model/finetuned_client0.npz')
  assert about['model'].startswith(f'own.py:{model}#')
  assert tuple(about['image_shape']) == INPUTS[model].shape[1:]
  assert params['head']['bias'].shape == (Y,)


OWN = {
  'loss': 'own.py:brier',
  'metrics': ('own.py:recall', 'own.py:brier_score'),
  'eval_global_model': True,
}


def test_loss_metric_and_identity(folder):
  config = config_of('Reviews', 'fedavg', **OWN)
  result = train(config)
  stored = run_dir.load_config('run')['config']
  assert stored['loss'].startswith('own.py:brier#')
  assert stored['metrics'][0].startswith('own.py:recall#')
  own = run_dir.load_clients('run').scores['finetuned'].own['recall']
  want = float(np.mean(own[np.isfinite(own)]))
  assert result['views']['finetuned']['recall'] == pytest.approx(want)
  assert 0 <= result['global']['recall'] <= 1
  assert 'FedAvg, recall: initial ' in table([result])
  assert 'initial/brier_score' in run_dir.load_metrics('run')[-1]
  assert '>recall' in page.render(['run']).replace(' ', '')
  # Without running the file again: neither the page nor a key needs it.
  key = run_key('run')
  (folder / 'own.py').unlink()
  assert run_key('run') == key and page.render(['run'])
  # Another content is another training, and another evaluation.
  before = (folder / 'run' / 'config.json').read_bytes()
  (folder / 'own.py').write_text(CODE + '# another line\n')
  message = refused(train, config)
  assert 'cause: a file of your own code was changed' in message
  assert (folder / 'run' / 'config.json').read_bytes() == before
  changed = build(config)
  assert training_key(changed.settings, changed.data_id) != key


def test_the_program_of_the_page_runs(folder):
  names = ('Gait', 'Reviews', 'brier', 'recall', 'by_class')
  own = {
    name: pfl.load_code({'loss': f'own.py:{name}'})['loss'].value
    for name in names
  }
  task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=3)
  fedavg = pfl.algorithm('fedavg')
  (stage,) = fedavg.build(task, fedavg.HParams())
  scope = {**own, 'np': np, 'pfl': pfl, 'algorithm': stage.algorithm}
  scope |= {'x': INPUTS['Gait'], 'y_train': LABELS, 'y_test': LABELS}
  exec(compile(BLOCKS[-1], 'own_loss.md', 'exec'), scope)
  assert len(BLOCKS) == 8 and BLOCKS[-1] not in CODE


def test_a_question_about_the_models_is_given_the_file_once_more(folder):
  experiment = build(config_of('Reviews', 'fedavg'))
  config = to_config(experiment.settings)
  run_dir.open_run('run', config, data=experiment.data_id, log=print).close()
  names = {'model': 'own.py:Reviews', 'partition': 'own.py:by_class'}
  given = partial(commandline.replace_fields, overrides=names)
  read, data = read_run('run', print, given)
  assert rebuild(read, data, print).data_id == experiment.data_id
  message = refused(rebuild, *read_run('run', print), print)
  assert '--config.model=own.py:Reviews' in message
  (folder / 'own.py').write_text(CODE + '\n')
  message = refused(read_run, 'run', print, given)
  assert 'the file as it was' in message


REFUSED = {
  'a model for images': ({'model': 'convnet3'}, 'convnet3 for inputs of int32'),
  'no function': ({'partition': 'own.py:CODE'}, 'a name that own.py defines'),
  'a metric twice': (
    {'metrics': ('own.py:recall', './own.py:recall')},
    'functions of different names',
  ),
  'FedLC': (
    {'loss': 'own.py:brier', 'algorithm': 'fedlc'},
    "loss: got 'brier', expected cross_entropy with FedLC",
  ),
}


@pytest.mark.parametrize('case', REFUSED)
def test_sentence_for(folder, case, compiled):
  changes, words = REFUSED[case]
  assert words in refused(train, config_of('Reviews', 'fedavg', **changes))
  own = {'jit(stage)', 'jit(convert_element_type)', 'jit(_threefry_seed)'}
  assert set(compiled) <= own
