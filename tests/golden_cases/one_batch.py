"""The cases of losses, gradients and a step on one batch.

A case may have variants: <variant>/<what>, and of some the settings, too.
"""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import apfl, fedlc, fedprox, fedrs, moon, superfed
from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.types import Outputs
from golden_cases.inputs import KEY, batch_of, of, stack


def variants(case, what='loss'):
  return [
    key.removesuffix(f'/{what}')
    for key in case.arrays
    if key.endswith(f'/{what}')
  ]


def settings_of(case, name, *words):
  """Return what a variant has of these."""
  return map(jnp.asarray, case.given(*(f'{name}/{word}' for word in words)))


def check_fedprox(case):
  anchor, (mu,) = case.params('global'), case.given('mu')
  loss, batch = fedprox.objective(case.task(), anchor, mu), case.batch()
  run = jax.jit(jax.value_and_grad(loss, has_aux=True))
  for place, start in (('', case.params('params')), ('at_global/', anchor)):
    (value, _), grads = run(start, batch, KEY(0))
    case.check(f'{place}loss', value)
    case.check(f'{place}grad', grads)


def check_moon(case):
  task, batch = case.task(), case.batch()
  names = 'local', 'global', 'previous', 'local_dead'
  models = {name: case.params(name) for name in names}

  @jax.jit
  def run(params, has_trained, mu, temperature):
    client = moon.Client(models['previous'], has_trained)
    loss = moon.objective(task, models['global'], client, mu, temperature)
    return jax.value_and_grad(loss, has_aux=True)(params, batch, KEY(0))

  for name in variants(case):
    settings = settings_of(case, name, 'mu', 'temperature')
    params = models['local_dead' if name == 'dead' else 'local']
    (loss, parts), grads = run(params, name != 'round0', *settings)
    case.check(f'{name}/loss', loss)
    case.check(f'{name}/ce', parts['cross_entropies'])
    case.check(f'{name}/contrastive', parts['contrasts'])
    case.check(f'{name}/grad', grads)
  z = task.train_outputs(models['local'], batch, KEY(0)).features
  case.check('full/z', z)
  for name in ('global', 'previous'):
    other = task.features(models[name], batch.x, batch.mask)
    case.check(f'full/z_{name}', other)
    case.check(f'full/cos_{name}', moon.cosine(z, other))


def check_fedrs(case):
  """Every variant is named after its form and its alpha: graded_0.5."""
  task, batch, params = case.task(), case.batch(), case.params('params')
  counts = jnp.asarray(*case.given('counts'))
  linear = task._replace(train_outputs=lambda z, batch, key: Outputs(z, z))

  @jax.jit
  def run(params, scale):
    logits, key = task.logits(params, batch.x, batch.mask), KEY(0)
    loss, grads = jax.value_and_grad(fedrs.objective(task, scale))(
      params, batch, key
    )
    of_logits = jax.grad(fedrs.objective(linear, scale))(logits, batch, key)
    return loss, grads, of_logits, logits, task.loss(params, batch, key)

  for name in variants(case):
    form, alpha = name.split('_')
    scale = fedrs.scales(counts, float(alpha), form == 'graded')
    case.check(f'{name}/scale', scale)
    loss, grads, of_logits, logits, cross_entropy = run(params, scale)
    case.check(f'{name}/loss', loss)
    case.check(f'{name}/grad', grads)
    case.check(f'{name}/grad_logits', of_logits)
  case.check('logits', logits)
  case.check('ce', cross_entropy)


def check_fedlc(case):
  task, batch, params = case.task(), case.batch(), case.params('params')
  case.given('counts')  # of all clients; a variant has those of one

  @jax.jit
  def run(counts, tau, y):
    loss = fedlc.objective(task, counts, tau)
    return jax.value_and_grad(loss)(params, batch._replace(y=y), KEY(0))

  for name in variants(case):
    loss, grads = run(*settings_of(case, name, 'counts', 'tau', 'y'))
    case.check(f'{name}/loss', loss)
    case.check(f'{name}/grad', grads)


def check_apfl(case):
  """One batch, one epoch: from each of the private models of the case."""
  task, shared = case.task(), case.params('w')

  @jax.jit
  def run(before, x, y, rate):
    train = case.training(batch_size=len(y), learning_rate=lambda clock: rate)
    algorithm = apfl.build(task, apfl.HParams(train))[0].algorithm
    server = global_model.Server(jnp.array(0), shared)
    data = of(stack(x[None], y[None]), 0)
    grads, _ = jax.grad(apfl.objective(task), has_aux=True)(
      apfl.Trained(shared, *before), batch_of(x, y), KEY(0)
    )
    return *algorithm.local_update(server, before, data, KEY(0)), grads.alpha

  for name in variants(case, 'alpha'):
    alpha, x, y, rate = settings_of(case, name, 'alpha', 'x', 'y', 'lr')
    before = apfl.Client(case.params(f'{name}/v'), alpha)
    client, params, metrics, slope = run(before, x, y, rate)
    for what, got in {
      'loss_w': metrics['losses'][0],
      'loss_mixed': metrics['mixed_losses'][0],
      'grad_alpha': slope,
      'alpha_unclipped': alpha - rate * slope,
      'alpha_new': client.alpha,
      'w_new': params,
      'v_new': client.private,
    }.items():
      case.check(f'{name}/{what}', got)


def check_superfed(case):
  anchor, federated, own = map(case.params, ('w_g', 'w_f', 'w_l'))
  own = {layer: {'bias': None, **leaves} for layer, leaves in own.items()}
  pair, found = superfed.Client(own, federated), terms(case, anchor)
  for term, objective in found.items():
    value, grads = jax.value_and_grad(objective)(pair)
    case.check(f'{term}/value', value)
    case.check(f'{term}/grad_f', grads.federated)
    case.check(f'{term}/grad_l', grads.local)
  norms = jax.value_and_grad(found['prox_norm'])
  value, grads = norms(pair._replace(federated=anchor))
  case.check('prox_norm_at_zero/value', value)
  most = max(jnp.abs(leaf).max() for leaf in jax.tree.leaves(grads.federated))
  case.check('prox_norm_at_zero/max_abs_grad', most)


def terms(case, anchor):
  """Return {term: function of both models} for one batch."""
  task, batch = case.task(), case.batch()
  twins = superfed.twin_mask(task, 'kernels')

  def total(mixing, drawn, mu, nu):
    hp = superfed.HParams(mixing=mixing, mu=mu, nu=nu)

    def objective(pair):
      loss = superfed.mixed_objective(task, hp, anchor)
      with mock.patch.object(superfed, 'draw_ratios', lambda rng, n: drawn):
        return loss(pair, batch, KEY(0))[0]

    return objective

  def cosine(pair, offset):
    kernels = trees.select(pair.federated, twins)
    return losses.squared_cosine(kernels, pair.local, offset)

  factors, found = (case['mu'], case['nu']), {}
  for mode, mixing in {'mm': 'model', 'lm': 'layer'}.items():
    (drawn,) = case.given(f'lambda/{mode}')
    drawn = jnp.asarray(drawn).ravel()
    found[f'ce_{mode}'] = total(mixing, drawn, 0, 0)
    found[f'total_{mode}'] = total(mixing, drawn, *factors)
  return {
    **found,
    'total_lambda0': total('model', jnp.zeros(1), *factors),
    'prox_squared': lambda pair: losses.sum_squares(pair.federated, anchor),
    'prox_norm': lambda pair: losses.sum_norms(pair.federated, anchor),
    'cos2': partial(cosine, offset=0.0),
    'cos2_eps': partial(cosine, offset=1e-6),
  }


CHECKS = {
  'fedprox loss and gradients on one batch': check_fedprox,
  'moon loss and gradients on one batch': check_moon,
  'fedrs loss and gradients on one batch': check_fedrs,
  'fedlc loss and gradients on one batch': check_fedlc,
  'apfl (deng et al. form), one plain-sgd step incl. clipping of alpha': (
    check_apfl
  ),
  'superfed loss terms and gradients on one batch': check_superfed,
}
