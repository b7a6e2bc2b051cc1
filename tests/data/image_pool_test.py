"""A pool of rows is read as the images themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_pfl as pfl
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.image_pool import ImagePool, pool_of

pytestmark = pytest.mark.usefixtures('quick_compiler')
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), np.uint8)


def pool():
  with compiling_for('gpu'):
    return pool_of(IMAGES)


def test_only_accelerators_have_rows():
  assert isinstance(pool_of(IMAGES), jax.Array)
  assert isinstance(pool(), ImagePool)
  assert pool_of(pool()).rows.shape == (6, 64)


def test_it_looks_like_images():
  rows = pool()
  assert (rows.shape, rows.dtype, rows.ndim) == ((6, 8, 8, 1), np.uint8, 4)
  assert len(rows) == 6
  index = jnp.array([[4, 1], [0, 0]])
  np.testing.assert_array_equal(rows[index], IMAGES[index])
  np.testing.assert_array_equal(jax.jit(lambda p: p[2])(rows), IMAGES[2])
  np.testing.assert_array_equal(rows[1:3], IMAGES[1:3])


def test_a_round_and_an_evaluation_have_the_same_bits():
  images = pfl.load_dataset('digits').train
  rows = [np.arange(4), np.arange(4, 11)]
  data = pfl.stack_clients(images, rows)
  with compiling_for('tpu'):
    flat = pfl.stack_clients(images, rows)
  assert isinstance(flat.x, ImagePool)
  task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  fedavg, key = pfl.algorithm('fedavg'), jax.random.key(0)
  train = pfl.LocalTraining(epochs=1, batch_size=4)
  (stage,) = fedavg.build(task, fedavg.HParams(train=train))
  round_fn = pfl.make_round(stage.algorithm)
  evaluate = pfl.make_evaluate(stage.algorithm, task.normalise, ('initial',))

  def play(data):
    server, clients = pfl.begin(stage, data, key)
    server, clients, _ = round_fn(server, clients, jnp.arange(2), data, key)
    states = server, clients, jnp.arange(2), data, data, key
    return server.params, evaluate(*states)

  for a, b in zip(*map(jax.tree.leaves, map(play, (data, flat))), strict=True):
    np.testing.assert_array_equal(a, b)
