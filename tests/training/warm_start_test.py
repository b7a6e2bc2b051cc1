"""A run may begin with the final model of another, if it fits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, refused
from safetensors.numpy import save_file

from configs import digits
from fedjax_pfl.models.registry import make_task
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.training import keys
from fedjax_pfl.training.build import build_experiment

pytestmark = pytest.mark.usefixtures('quick_compiler')
SHAPE = (8, 8, 1)
OTHER_PARTITION = {'shards_per_client': 4}


@pytest.fixture
def start(tmp_path):
  """Return a function that writes what a finished run leaves: its path, data.

  The model is convnet3 with one value everywhere, unless `about` says so.
  """

  def write(value=0.5, shape=SHAPE, changes=(), **about):
    settings = digits.get_config('fedavg').to_dict() | dict(changes)
    data = build_experiment(settings).data_id
    task = make_task('convnet3', image_shape=shape, num_classes=10)
    shapes = jax.eval_shape(task.init, KEY(0))
    params = jax.tree.map(lambda leaf: np.full(leaf.shape, value, 'f4'), shapes)
    run = run_dir.open_run(tmp_path / 'run', {'seed': 0}, data=data)
    about = {'model': 'convnet3', 'num_classes': 10, **about}
    about.setdefault('image_shape', SHAPE)
    save_model(run.model_path('global'), params, about)
    run.write_result(
      algorithm='fedavg', dataset='digits', rounds=1, seconds=1.0, views={}
    )
    return str(run.path), data

  return write


def build(start, method='fedavg', **changes):
  settings = digits.get_config(method).to_dict()
  return build_experiment({**settings, 'init_from': start, **changes})


def test_a_run_begins_with_the_model_of_another(start):
  """On another partition, which it may only evaluate."""
  path, data = start()
  experiment = build(path, rounds=0, **OTHER_PARTITION)
  server = experiment.stages[0].algorithm.init_server(KEY(8))
  assert all(jnp.all(leaf == 0.5) for leaf in jax.tree.leaves(server.params))
  assert experiment.rounds == 0
  assert experiment.data_id.count('+') == 1
  assert not experiment.data_id.startswith(data)
  other, _ = start(0.25)  # another model makes another run
  assert build(other, rounds=0, **OTHER_PARTITION).data_id != experiment.data_id


def test_a_head_that_begins_otherwise(start):
  message = refused(lambda: build(start()[0], head_init='similar'))
  assert "head_init: got 'similar', expected default with init_from" in message


def test_a_model_of_another_shape(start):
  message = refused(build, start(num_classes=62)[0])
  assert 'a convnet3 for 62 classes of 8x8x1 images, ' in message
  assert ', expected a convnet3 for 10 classes of 8x8x1 images, ' in message


def test_a_model_that_diverged(start):
  message = refused(lambda: build(start(float('nan'))[0], rounds=0))
  assert 'in which NaN or infinity stands' in message


def test_a_run_that_is_not_there_or_not_finished(start, tmp_path):
  path, _ = start()
  message = refused(build, f'{path}n')
  assert f'Choices: {path} (did you mean {path}?)' in message
  (tmp_path / 'run' / 'model' / 'global.npz').unlink()
  assert 'a run with a global model' in refused(build, path)
  (tmp_path / 'run' / run_dir.RESULT).unlink()
  assert 'directory that holds result.json' in refused(build, path)


@pytest.mark.parametrize(
  ('method', 'same', 'other'),
  [
    ('lg_fedavg', {'hp': {'train_fedavg': False}}, OTHER_PARTITION),
    # A run of the same split trained on none of the examples kept apart.
    ('fedavg', {'validation_fraction': 0.2}, {'validation_fraction': 0.1}),
  ],
)
def test_the_clients_have_to_be_those_of_the_start(start, method, same, other):
  path, data = start(changes={} if 'hp' in same else same)
  experiment = build(path, method, **same)
  assert experiment.data_id.startswith(f'{data}+')
  assert [stage.name for stage in experiment.stages] == [method]
  message = refused(lambda: build(path, method, **{**same, **other}))
  assert f"init_from: got '{path}, on the data {data}" in message


LORA = {'lora_rank': 2, 'hp': {'shared': '*/lora_*'}}


def test_adapters_begin_beside_the_model_of_another_run(start):
  experiment = build(start()[0], 'partial', **LORA)
  params = experiment.task.init(KEY(8))
  assert (params['conv1']['kernel'] == 0.5).all()
  assert params['conv1']['lora_a'].std() > 0.1
  assert not params['conv1']['lora_b'].any()


def test_a_checkpoint_of_safetensors(tmp_path):
  """PyTorch's names and layout; a head of other classes is drawn."""
  task = make_task('convnet3', image_shape=SHAPE, num_classes=10)
  params = jax.tree.map(np.asarray, task.init(KEY(3)))
  tensors = {'head.weight': np.zeros((62, 64), 'f4')}
  for name in ('conv1', 'conv2', 'conv3'):
    kernel = params[name]['kernel'].transpose(3, 2, 0, 1)
    tensors[f'{name}.weight'] = np.ascontiguousarray(kernel)
    tensors[f'{name}.bias'] = params[name]['bias']
  for name in ('bn1', 'bn2', 'bn3'):
    tensors[f'{name}.weight'] = params[name]['scale']
    tensors[f'{name}/bias'] = params[name]['bias']
  path, lines = str(tmp_path / 'net.safetensors'), []
  save_file(tensors, path)
  settings = digits.get_config('partial').to_dict() | LORA
  settings['init_from'] = path
  experiment = build_experiment(settings, lines.append)
  got = experiment.task.init(KEY(4))
  for name in params.keys() - {'head'}:
    for leaf, want in params[name].items():
      assert (got[name][leaf] == want).all(), (name, leaf)
  assert 'head/kernel [64, 62] in place of [64, 10]' in ' '.join(lines)
  assert keys.run_key(path) == experiment.data_id.partition('+')[2]

  lines.clear()
  width = len(params['bn1']['bias'])
  save_file(tensors | {'stem.bias': np.zeros(64, 'f4')}, path)
  build_experiment(settings, lines.append)
  assert 'for the model has no stem/bias' in ' '.join(lines)
  for values, words in (
    (np.full(width, np.inf, 'f4'), 'with bn1/bias float32'),
    (np.full(width, 1e300), 'in which NaN or infinity stands'),
    (np.ones(width, 'i4'), 'quantised weights'),
  ):
    save_file(tensors | {'bn1/bias': values}, path)
    assert words in refused(build_experiment, settings)
  save_file(tensors | {'conv1.weight': np.zeros(64, 'f4')}, path)
  assert 'conv1/kernel' in refused(build_experiment, settings)
  del tensors['conv1.bias']
  tensors['stem.bias'] = np.zeros(64, 'f4')
  save_file(tensors, path)
  message = refused(build_experiment, settings)
  assert 'no conv1/bias' in message and 'Choices: stem/bias' in message
  (tmp_path / 'net.safetensors').write_bytes(b'nothing')
  assert 'a file that safetensors wrote' in refused(build_experiment, settings)
