"""The methods for clients that hold few classes: FedRS and FedLC."""

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import fedlc, fedrs
from fedjax_pfl.core.types import Batch, Outputs
from golden_cases import rounds
from golden_cases.case_inputs import KEY, as_given, case_task


def check_fedrs(case):
  graded = case.settings.get('graded', False)
  rounds.check_method(case, 'fedrs', alpha=case['alpha'], graded=graded)


def check_fedlc(case):
  rounds.check_method(case, 'fedlc', tau=case['tau'])


def check_fedrs_batch(case):
  """Every variant is named after its form and its alpha: graded_0.5."""
  task = case_task(case)
  params, batch = params_and_batch(case)
  counts = jnp.asarray(case.arrays['counts'])
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
    case.check_tree(f'{name}/grad', grads)
    case.check(f'{name}/grad_logits', of_logits)
  case.check('logits', logits)
  case.check('ce', cross_entropy)
  case.finish(inputs=('params/', 'x', 'y', 'counts'))


def check_fedlc_batch(case):
  task = case_task(case)
  params, batch = params_and_batch(case)

  @jax.jit
  def run(counts, tau, y):
    loss = fedlc.objective(task, counts, tau)
    return jax.value_and_grad(loss)(params, batch._replace(y=y), KEY(0))

  for name in variants(case):
    settings = (case.arrays[f'{name}/{what}'] for what in INPUTS)
    loss, grads = run(*map(jnp.asarray, settings))
    case.check(f'{name}/loss', loss)
    case.check_tree(f'{name}/grad', grads)
  given = [f'{name}/{what}' for name in variants(case) for what in INPUTS]
  case.finish(inputs=('params/', 'x', 'y', 'counts', *given))


INPUTS = ('counts', 'tau', 'y')


def variants(case):
  return [key[:-5] for key in case.arrays if key.endswith('/loss')]


def params_and_batch(case):
  arrays = dict(case.arrays)
  x, y = jnp.asarray(arrays['x']), jnp.asarray(arrays['y'])
  params = as_given(case.subtree(arrays, 'params/'))
  return params, Batch(x, y, jnp.ones(len(x)))


CHECKS = {
  'fedrs (binary form)': check_fedrs,
  'fedlc': check_fedlc,
  'fedrs loss and gradients on one batch': check_fedrs_batch,
  'fedlc loss and gradients on one batch': check_fedlc_batch,
}
