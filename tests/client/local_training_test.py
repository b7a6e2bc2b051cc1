"""Local training is the plain loop over epochs and batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  FINETUNE,
  KEY,
  TRAIN,
  assert_close,
  client_of,
  make_data,
  make_task,
  params_of,
)

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.types import Batch

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, QUIET, DATA = make_task(), make_task(noise=0), make_data()
PARAMS = params_of(TASK)


def fit(task, data, epochs, tx, *, shuffle=False, **options):
  """Return what one compiled fit of PARAMS returns."""

  @jax.jit
  def run(data):
    batching = local_training.Batching(BATCH, epochs, task.augment, shuffle)
    given = {'tx': tx, 'batching': batching, **options}
    start = given.pop('start', PARAMS)
    return local_training.fit(task.loss, start, data, KEY(0), **given)

  return run(data)


@functools.partial(jax.jit, static_argnums=0)
def step(tx, tree, state, batch):
  value, grads = jax.value_and_grad(QUIET.loss)(tree, batch, KEY(0))
  updates, state = tx.update(grads, state, tree)
  return optax.apply_updates(tree, updates), state, value


def by_python(data, epochs, tx):
  """Fit in stored order on the client's own examples: no padding at all."""
  rows = data.index[: int(data.count)]
  tree, state, losses = PARAMS, tx.init(PARAMS), []
  for _ in range(epochs):
    for batch in np.split(rows, range(BATCH, len(rows), BATCH)):
      x = QUIET.normalise(data.x[batch], None)
      batch = Batch(x, data.y[batch], jnp.ones(len(x)))
      tree, state, value = step(tx, tree, state, batch)
      losses.append(value)
  return tree, losses


@pytest.mark.usefixtures('float64')
def test_every_client_does_as_many_steps():
  train = TRAIN._replace(steps=7, shuffle=False, epochs=3)
  tx = optax.sgd(0.1)
  for k in (1, 4):
    data = client_of(DATA, k)
    tree, info = fit(QUIET, data, 1, tx, batching=train.batching(QUIET))
    batches = -(-int(data.count) // BATCH)
    assert int(info.num_steps) == 7 > batches
    whole, losses = by_python(data, -(-7 // batches), tx)
    assert_close(info.losses, jnp.array(losses[:7]))
    if 7 % batches == 0:
      assert_close(tree, whole)


@pytest.mark.usefixtures('float64')
def test_a_snapshot_is_the_fit_that_ends_there():
  data, tx = client_of(DATA, 4), optax.sgd(0.1, 0.9)
  last, info = fit(TASK, data, 9, tx, shuffle=True, stops=(1, 5, 2))
  alone, _ = fit(TASK, data, 2, tx, shuffle=True)
  assert_close(info.snapshots[2], alone)
  assert_close(info.snapshots[1], last)
  assert info.num_steps == 5 * 3
  first, second = (info.snapshots[n]['head']['bias'] for n in (0, 2))
  assert not np.allclose(first, second)


def test_finetuning_is_a_fit_on_training_inputs():
  """SGD with momentum at its own rate, on augmented images, without decay."""
  personal, data = FINETUNE._replace(epochs=(3, 1, 3)), client_of(DATA, 4)
  models = personalization.finetune(TASK, PARAMS, data, KEY(0), personal)
  assert list(models) == ['finetuned_1', 'finetuned']
  tx = optax.sgd(personal.learning_rate, personal.momentum)
  _, want = fit(TASK, data, 3, tx, shuffle=True, stops=(1, 3))
  got = models['finetuned_1'], models['finetuned']
  assert_close(got, want.snapshots)
  # By other rates: the same model, examples and order.
  others = personal._replace(factors=(0.1,))
  both = personalization.finetune(TASK, PARAMS, data, KEY(0), others)
  names = ['finetuned_1', 'finetuned', 'finetuned_1_x0.1', 'finetuned_x0.1']
  assert list(both) == names
  slow = personal._replace(learning_rate=0.1 * personal.learning_rate)
  alone = personalization.finetune(TASK, PARAMS, data, KEY(0), slow)
  assert_close(both['finetuned'], models['finetuned'])
  assert_close(both['finetuned_x0.1'], alone['finetuned'])
  assert_close(both['finetuned_1_x0.1'], alone['finetuned_1'])
