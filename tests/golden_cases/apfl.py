"""APFL: alpha learnt in every step, or once a round; w first; as released."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import apfl
from fedjax_pfl.client import global_model, local_training
from fedjax_pfl.core.types import Batch
from golden_cases import rounds
from golden_cases.case_inputs import (
  KEY,
  as_given,
  case_task,
  clients_data,
  of,
  stack,
  training,
)
from golden_cases.python_loops import stepwise

ADAPTATIONS = {'first_step_of_round': 'first_step'}


def check_paper(case):
  how = case.settings.get('alpha_update', 'every_step')
  hp = apfl.HParams(
    training(case),
    alpha=case['alpha_init'],
    adapt=ADAPTATIONS.get(how, how),
    order=case.settings.get('update_order', 'simultaneous'),
  )
  check_rounds(case, hp)


def check_released(case):
  hp = apfl.HParams(
    training(case),
    alpha=case['alpha'],
    protocol='released',
    private_decay=case['weight_decay_v'],
  )
  check_rounds(case, hp)


def check_rounds(case, hp):
  algorithm = apfl.build(case_task(case), hp)[0].algorithm
  train, test = clients_data(case)
  losses, alphas = {}, []
  shared = [case_task(case).init(None)] * case['clients']
  for done in rounds.run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      check_metrics(case, i, done.number, update)
      losses[done.number, i] = update.metrics['loss']
      shared[i] = update.upload
    for i, client in enumerate(done.clients):
      place = f'client{i}/round{done.number}'
      rounds.check_stored(case, f'{place}/w', shared[i])
      rounds.check_stored(case, f'{place}/v', client.private)
    alphas.append([client.alpha for client in done.clients])
    case.check_tree(f'global/round{done.number}', done.server.params)
  rounds.check_losses(case, losses)
  if 'alpha' in case.digests:
    case.check('alpha', np.transpose(alphas))  # [client, round]
  for i, client in enumerate(done.clients):
    views = algorithm.personalize(done.server, client, of(train, i), KEY(0))
    logits, _, _ = rounds.evaluated(algorithm, views['personal'], test, i)
    case.check(f'personalized/client{i}/logits', logits)
  case.finish()


def check_metrics(case, i, number, update):
  """Compare both losses before, and alpha after, every step."""
  metrics = update.metrics
  steps = int(metrics['num_steps']) // 2
  rows = {
    'step_loss': metrics['losses'][:steps],
    'step_loss_mixed': metrics['mixed_losses'][:steps],
  }
  if 'alpha_init' in case.settings:
    later = metrics['alphas'][1:steps]
    rows['alpha_trace'] = jnp.append(later, update.client.alpha)
  for name, values in rows.items():
    case.check(f'{name}/client{i}/round{number}', values)


def check_single_step(case):
  """One batch, one epoch: from each of the private models of the case."""
  task, arrays = case_task(case), dict(case.arrays)
  shared = as_given(case.subtree(arrays, 'w/'))
  variants = [key.removesuffix('/alpha') for key in arrays if '/alpha' in key]
  variants = [name for name in variants if f'{name}/alpha' in arrays]
  for name in variants:
    check_variant(case, task, shared, name)
  inputs = [
    f'{name}/{part}' for name in variants for part in ('v/', 'x', 'y', 'lr')
  ]
  alphas = {f'{name}/alpha' for name in variants}
  case.seen |= alphas
  case.finish(inputs=('w/', *inputs))


def check_variant(case, task, shared, name):
  given = {
    key.removeprefix(f'{name}/'): value
    for key, value in case.arrays.items()
    if key.startswith(f'{name}/')
  }
  x, y, rate = given['x'], given['y'], float(given['lr'])
  train = local_training.LocalTraining(
    epochs=1,
    batch_size=len(y),
    learning_rate=lambda clock: rate,
    momentum=case['momentum'],
    weight_decay=case['weight_decay'],
    shuffle=False,
  )
  algorithm = apfl.build(task, apfl.HParams(train))[0].algorithm
  private = as_given(case.subtree(given, 'v/'))
  before = apfl.Client(private, jnp.asarray(given['alpha']))
  client, params, metrics = stepwise(algorithm.local_update)(
    global_model.Server(jnp.array(0), shared),
    before,
    of(stack(x[None], y[None], len(y)), 0),
    KEY(0),
  )
  tree = apfl.Trained(shared, *before)
  batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y)))
  grads, _ = jax.grad(apfl.objective(task), has_aux=True)(tree, batch, KEY(0))
  case.check(f'{name}/loss_w', metrics['losses'][0])
  case.check(f'{name}/loss_mixed', metrics['mixed_losses'][0])
  case.check(f'{name}/grad_alpha', grads.alpha)
  case.check(f'{name}/alpha_unclipped', before.alpha - rate * grads.alpha)
  case.check(f'{name}/alpha_new', client.alpha)
  case.check_tree(f'{name}/w_new', params)
  case.check_tree(f'{name}/v_new', client.private)


DENG = 'apfl (deng et al. 2020 form, '
CHECKS = {
  f'{DENG}alpha adapted at every local step)': check_paper,
  f'{DENG}alpha adapted only at the first local step of each round)': (
    check_paper
  ),
  f'{DENG}w stepped before v, alpha adapted at every local step)': check_paper,
  'apfl (deng et al. form), one plain-sgd step incl. clipping of alpha': (
    check_single_step
  ),
  'apfl as coded in the final superfed repository (fixed alpha, stale w) - '
  'not the published algorithm': check_released,
}
