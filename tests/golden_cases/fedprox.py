"""FedProx, and FedProx whose head stays as it was: FedProx + FedBABU."""

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import fedprox
from fedjax_pfl.core.types import Batch
from golden_cases.case_inputs import (
  KEY,
  as_given,
  case_task,
  finetuning_settings,
  training,
)
from golden_cases.rounds import check_global_model, check_steps


def check_rounds(case):
  hp = fedprox.HParams(
    training(case),
    finetuning_settings(case),
    mu=case['mu'],
    trainable=case.settings.get('local_update_part', 'full'),
  )
  check_rounds_of_objective(
    case, fedprox.build(case_task(case), hp)[0].algorithm
  )


def check_rounds_of_objective(case, algorithm):
  """Play a method whose loss reports the cross-entropy beside the objective."""
  check_global_model(case, algorithm, check_both_losses)


def check_both_losses(case, i, number, info):
  """Compare cross-entropies alone, or the objective and them beside it."""
  alone = f'step_ce/client{i}/round{number}'
  cross_entropies = info.reports['cross_entropies']
  if alone in case.digests:
    check_steps(case, i, number, info)
    case.check(alone, cross_entropies[: int(info.num_steps)])
  else:
    check_steps(case, i, number, info, cross_entropies)


def check_single_batch(case):
  task = case_task(case)
  arrays = dict(case.arrays)
  params, anchor = (
    as_given(case.subtree(arrays, prefix)) for prefix in ('params/', 'global/')
  )
  x, y = jnp.asarray(arrays['x']), jnp.asarray(arrays['y'])
  batch = Batch(x, y, jnp.ones(len(x)))

  @jax.jit
  def run(params):
    loss = fedprox.objective(task, anchor, arrays['mu'])
    return jax.value_and_grad(loss, has_aux=True)(params, batch, KEY(0))

  for place, start in (('', params), ('at_global/', anchor)):
    (loss, _), grads = run(start)
    case.check(f'{place}loss', loss)
    case.check_tree(f'{place}grad', grads)
  case.finish(inputs=('params/', 'global/', 'x', 'y', 'mu'))


CHECKS = {
  'fedprox': check_rounds,
  'fedprox + fedbabu': check_rounds,
  'fedprox (fedconcat / niid-bench convention)': check_rounds,
  'fedprox loss and gradients on one batch': check_single_batch,
}
