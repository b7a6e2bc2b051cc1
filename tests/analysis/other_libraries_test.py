"""Models for PyTorch and ONNX: the same logits as here."""

import importlib.util
import json
import subprocess
import sys
import textwrap

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused

import fedjax_pfl as pfl
from fedjax_pfl.analysis import onnx_graph, torch_module
from fedjax_pfl.analysis.chosen_model import Owner
from fedjax_pfl.analysis.export import export, export_model
from fedjax_pfl.analysis.layer_list import layer_list, tensors_of
from fedjax_pfl.analysis.model_header import TOGETHER, about_model
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.models import layers
from fedjax_pfl.runs.model_file import load_model

pytestmark = pytest.mark.usefixtures('quick_compiler')
CONFIG = {
  'dataset': 'synthetic',
  'conv_impl': 'lax',
  'num_clients': 2,
  'max_train_examples': 20,
  'rounds': 1,
  'local_epochs': 1,
  'batch_size': 10,
  'views': ('initial',),
  'eval_views': (),
}


class Net(layers.Network):
  """Each kind of step that no model of the list of models has."""

  @nn.compact
  def features(self, x, mask, train=False):
    x = nn.Dropout(0.5)(x, deterministic=not train)
    x = nn.tanh(nn.Conv(6, (3, 3), (2, 2), 'VALID', name='a')(x))
    x = nn.Conv(6, (3, 5), feature_group_count=3, use_bias=False, name='b')(x)
    x = x + nn.sigmoid(nn.GroupNorm(2, name='norm')(x))
    x = nn.avg_pool(x, (2, 2), (1, 2))
    x = nn.Dense(9, use_bias=False, name='c')(x.reshape(len(x), -1))
    return nn.relu(layers.BatchNorm(name='rows')(x, mask))


class Uneven(layers.Network):
  @nn.compact
  def features(self, x, mask):
    return nn.Conv(4, (3, 3), (2, 2), name='uneven')(x).mean((1, 2))


def network(**fields):
  """Return an experiment, parameters far from the first ones, and inputs."""
  experiment = pfl.build_experiment(load_code({**CONFIG, **fields}))
  random = np.random.RandomState(0)

  def moved(path, leaf):
    low, high = 0.5, 1.5
    if path[-1].key == 'running_var':  # what is smaller makes images matter
      low, high = 0.1, 0.3
    shift = random.uniform(-0.1, 0.1, leaf.shape) * (leaf.ndim == 1)
    return (leaf * random.uniform(low, high, leaf.shape) + shift).astype('f')

  params = experiment.task.init(jax.random.key(0))
  params = jax.tree.map_with_path(moved, jax.device_get(params))
  x = np.asarray(experiment.dataset.test.x[:7])
  inputs = experiment.task.normalise(x)
  logits = jax.jit(experiment.task.logits)(params, inputs, jnp.ones(len(x)))
  assert 1e-2 < np.ptp(logits, 0).max() < 100
  return experiment, params, x.transpose(0, 3, 1, 2).astype('f'), logits


def contents(form, experiment, params):
  about = {
    **about_model(experiment, params),
    'algorithm': 'fedavg',
    'client': 0,
  }
  steps = layer_list(experiment)
  tensors = tensors_of(steps, params, about)
  return form.contents(steps, tensors, about, 'm.safetensors')


RUNNING = {'norm_statistics': 'running'}


def assert_same(theirs, logits):
  most = max(1, np.abs(logits).max())
  np.testing.assert_allclose(theirs, logits, atol=1e-5 * most, rtol=0)


NETWORKS = {
  'kinds': {'model': f'{__file__}:Net', **RUNNING},
  'running': {'model': 'convnet3', **RUNNING},
  'adapters': {'model': 'simple_cnn', 'lora_rank': 2, 'algorithm': 'partial'},
  'blocks': {'model': 'resnet10', **RUNNING},
  'depthwise': {'model': 'mobilenet', **RUNNING},
  'scaled': {'model': 'resnet18_imagenet', 'model_image_size': 40, **RUNNING},
}


@pytest.mark.parametrize('name', NETWORKS)
def test_pytorch_computes_the_same_logits(name, tmp_path):
  torch = pytest.importorskip('torch')
  from safetensors.torch import load

  experiment, params, x, logits = network(**NETWORKS[name])
  tensors, code = contents(torch_module, experiment, params)
  (tmp_path / 'net.py').write_bytes(code)
  spec = importlib.util.spec_from_file_location('net', tmp_path / 'net.py')
  spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
  net = module.Network()
  net.load_state_dict(load(tensors))
  theirs = net.eval()(torch.tensor(x)).detach().numpy()
  assert_same(theirs, logits)


@pytest.mark.parametrize('name', NETWORKS)
def test_onnx_computes_the_same_logits(name):
  onnx = pytest.importorskip('onnx')
  from onnx.reference import ReferenceEvaluator

  experiment, params, x, logits = network(**NETWORKS[name])
  (content,) = contents(onnx_graph, experiment, params)
  session = ReferenceEvaluator(onnx.load_from_string(content))
  (theirs,) = session.run(None, {'x': x})
  assert_same(theirs, logits)


@pytest.fixture(scope='module')
def batch_run(tmp_path_factory, quick_compiler):
  """Return a run whose BatchNorm has statistics of the batch, finished."""
  workdir = tmp_path_factory.mktemp('batch') / 'run'
  experiment = pfl.build_experiment({**CONFIG, 'model': 'convnet3'})
  pfl.train(experiment, workdir)
  return experiment, workdir


def test_files_of_a_run_need_pytorch_alone(batch_run, tmp_path):
  """Those of a client; the module is a page, and says how it is used."""
  experiment, workdir = batch_run
  said, path = [], tmp_path / 'net.safetensors'
  owner, own = Owner(0, 'initial'), (said.append, False, 'torch')
  export_model(experiment, workdir, owner, path, *own)
  code = path.with_suffix('.py').read_text()
  assert len(code.splitlines()) <= 35 and said[0] == TOGETHER
  assert 'client 0' in code and 'track_running_stats=False' in code
  pytest.importorskip('torch')
  lines = textwrap.dedent(code.split('"""')[1].split('\n\n')[2])
  test = experiment.test
  x = np.asarray(test.x[test.index[0, : test.count[0]]])
  np.save(tmp_path / 'x.npy', x.transpose(0, 3, 1, 2).astype('f'))
  program = (
    'import sys, numpy, torch; from net import Network\n'
    f'x = torch.tensor(numpy.load("x.npy"))\n{lines}\nprint(logits.tolist())\n'
    'assert not {"jax", "flax", "fedjax_pfl"} & {*sys.modules}'
  )
  command = [sys.executable, '-c', program]
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  export_model(experiment, workdir, owner, tmp_path / 'm.npz', said.append)
  params, inputs = (
    load_model(tmp_path / 'm.npz')[0],
    experiment.task.normalise(x),
  )
  ours = jax.jit(experiment.task.logits)(params, inputs, jnp.ones(len(x)))
  assert_same(np.array(json.loads(done.stdout)), ours)


def test_what_is_refused_before_anything_is_written(
  batch_run, tmp_path, monkeypatch
):
  installed = lambda *args: None
  monkeypatch.setattr('fedjax_pfl.analysis.export.check_installed', installed)
  path = tmp_path / 'net.safetensors'
  call = export, batch_run[1], '0', ''
  rest = print, None, False
  onnx = path.with_suffix('.onnx')
  assert 'norm_statistics=running' in refused(*call, onnx, *rest, 'onnx')
  assert not [*tmp_path.iterdir()]
  path.with_suffix('.py').write_text('mine')
  assert 'net.py' in refused(*call, path, *rest, 'torch')
  assert 'npz, torch, onnx' in refused(*call, path, *rest, 'keras')
  assert len([*tmp_path.iterdir()]) == 1
  about = {'rule': {'name': 'network, euclidean', 'text': 'the nearest'}}
  assert 'the nearest' in refused(tensors_of, [], {}, about)


@pytest.mark.parametrize(
  ('fields', 'words'),
  [
    ({'model': 'vit_tiny'}, 'reshape in ViT.features'),
    ({'model': f'{__file__}:Uneven'}, 'Conv in uneven'),
    (
      {
        'views': ('personal',),
        'models': ('convnet3', 'simple_cnn'),
        'feature_width': 8,
        'algorithm': 'fd',
      },
      'several architectures',
    ),
  ],
)
def test_another_layer_is_a_sentence_with_its_name(fields, words):
  experiment = pfl.build_experiment(load_code({**CONFIG, **fields}))
  assert words in refused(layer_list, experiment)
