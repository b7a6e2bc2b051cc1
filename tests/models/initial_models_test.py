"""How each model begins: as the code of the paper that has it.

Sections "Models" of the protocols. FedBABU's models, and FedConcat's simple CNN
and VGG-9, begin as PyTorch layers do; FedConcat's ResNet-50 has He-normal
convolutions by fan_out; SuPerFed's CNN has Glorot-normal kernels, biases at 0.
"""

import math

import jax
import numpy as np
import pytest

from fedjax_pfl.models.registry import make_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
MODELS = {  # (a small image that it reads, kernels, biases)
  'simple_cnn': ((16, 16, 1), 'uniform', 'uniform'),
  'vgg9': ((8, 8, 1), 'uniform', 'uniform'),
  'resnet50': ((4, 4, 3), 'uniform', 'uniform'),
  'resnet50_he': ((4, 4, 3), 'he_normal', 'uniform'),
  'superfed_cnn': ((28, 28, 1), 'glorot_normal', 'zero'),
}
ENOUGH = 5_000  # numbers whose deviation is known to a few percent


def leaves(tree):
  """Return {'stage1/block0/conv1/kernel': array, ..}."""
  found = jax.tree_util.tree_leaves_with_path(tree)
  return {'/'.join(key.key for key in path): leaf for path, leaf in found}


def check(values, how, fan_in, fan_out):
  """Assert that the numbers are drawn as `how` says."""
  values = np.asarray(values, np.float64)
  if how == 'zero':
    assert not values.any()
    return
  bound = 1 / math.sqrt(fan_in)
  std = {
    'uniform': bound / math.sqrt(3),
    'he_normal': math.sqrt(2 / fan_out),
    'glorot_normal': math.sqrt(2 / (fan_in + fan_out)),
  }[how]
  if how == 'uniform':
    assert np.abs(values).max() <= bound * (1 + 1e-6)  # in float32
  if values.size >= ENOUGH:
    assert values.std() == pytest.approx(std, rel=0.05)
    if how != 'uniform':  # not truncated: there are tails
      assert np.abs(values).max() > 3 * std


@pytest.mark.parametrize('name', MODELS)
def test_a_model_begins_as_in_its_paper(name):
  shape, kernels, biases = MODELS[name]
  task = make_task(name, image_shape=shape, num_classes=10)
  names = jax.eval_shape(task.init, jax.random.key(0))
  # Of a ResNet a stage is enough, and XLA then compiles no more.
  few = [n for n in names if n not in ('stage2', 'stage3', 'stage4')]

  @jax.jit
  def draw(key):
    params = task.init(key)
    return {name: params[name] for name in few}

  params = leaves(draw(jax.random.key(0)))
  for path, values in params.items():
    folder, _, leaf = path.rpartition('/')
    if leaf == 'scale':
      assert (np.asarray(values) == 1).all(), path
    elif f'{folder}/scale' in params:  # the shift of a BatchNorm
      assert not np.asarray(values).any(), path
    else:
      kernel = params[f'{folder}/kernel']
      size = math.prod(kernel.shape[:-2])
      fans = size * kernel.shape[-2], size * kernel.shape[-1]
      how = kernels if leaf == 'kernel' else biases
      if name == 'resnet50_he' and folder == 'head':
        how = 'uniform'  # a Linear, which the code leaves as it is
      check(values, how, *fans)
