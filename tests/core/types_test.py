"""A task tells which leaves normalise, and classifies features."""

import jax
import jax.numpy as jnp
import pytest
from helpers import KEY, assert_same_bits

from fedjax_pfl.core import trees
from fedjax_pfl.models.registry import make_task


@pytest.mark.parametrize('precision', ['float32', 'mixed'])
def test_classify_gives_the_logits_of_the_features(precision):
  task = make_task(
    'convnet3', image_shape=(8, 8, 1), num_classes=3, precision=precision
  )
  params, mask = task.init(KEY(0)), jnp.ones(4)
  x = jax.random.uniform(KEY(1), (4, 8, 8, 1))
  features = task.features(params, x, mask)
  logits = task.logits(params, x, mask)
  assert_same_bits(task.classify(params, features), logits)


@pytest.mark.parametrize(
  'name, layers', [('convnet3', {'bn1', 'bn2', 'bn3'}), ('simple_cnn', set())]
)
def test_normalisation_layers_are_known(name, layers):
  side = {'convnet3': 8}.get(name, 32)
  task = make_task(name, image_shape=(side, side, 1), num_classes=3)
  names = trees.leaf_names(trees.select(task.is_head, task.is_norm))
  want = {f'{layer}/{leaf}' for layer in layers for leaf in ('scale', 'bias')}
  assert {*names} == want
