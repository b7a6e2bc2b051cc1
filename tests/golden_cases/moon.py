"""MOON without a projection head."""

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import moon
from fedjax_pfl.core.types import Batch
from golden_cases.case_inputs import (
  KEY,
  as_given,
  case_task,
  finetuning_settings,
  training,
)
from golden_cases.fedprox import check_rounds_of_objective

MODELS = ('local', 'global', 'previous', 'local_dead')
SETTINGS = ('mu', 'temperature')


def check_rounds(case):
  hp = moon.HParams(
    training(case),
    finetuning_settings(case),
    mu=case['mu'],
    temperature=case['temperature'],
  )
  check_rounds_of_objective(case, moon.build(case_task(case), hp)[0].algorithm)


def check_single_batch(case):
  task, arrays = case_task(case), dict(case.arrays)
  models = {name: as_given(case.subtree(arrays, f'{name}/')) for name in MODELS}
  x, y = jnp.asarray(arrays['x']), jnp.asarray(arrays['y'])
  batch = Batch(x, y, jnp.ones(len(x)))

  @jax.jit
  def run(params, has_trained, mu, temperature):
    client = moon.Client(models['previous'], has_trained)
    loss = moon.objective(task, models['global'], client, mu, temperature)
    return jax.value_and_grad(loss, has_aux=True)(params, batch, KEY(0))

  names = [key[:-5] for key in arrays if key.endswith('/loss')]
  for name in names:
    settings = (arrays[f'{name}/{what}'] for what in SETTINGS)
    params = models['local_dead' if name == 'dead' else 'local']
    (loss, parts), grads = run(params, name != 'round0', *settings)
    case.check(f'{name}/loss', loss)
    case.check(f'{name}/ce', parts['cross_entropies'])
    case.check(f'{name}/contrastive', parts['contrasts'])
    case.check_tree(f'{name}/grad', grads)
  check_features(case, task, models, batch)
  given = [f'{name}/{what}' for name in names for what in SETTINGS]
  case.finish(inputs=(*(f'{name}/' for name in MODELS), 'x', 'y', *given))


def check_features(case, task, models, batch):
  z = task.train_outputs(models['local'], batch, KEY(0)).features
  case.check('full/z', z)
  for name in ('global', 'previous'):
    other = task.features(models[name], batch.x, batch.mask)
    case.check(f'full/z_{name}', other)
    case.check(f'full/cos_{name}', moon.cosine(z, other))


CHECKS = {
  'moon (head-less form)': check_rounds,
  'moon loss and gradients on one batch': check_single_batch,
}
