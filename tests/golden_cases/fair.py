"""Fair objectives against public code: of their authors, of FedMGDA+ flgo."""

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around.fair import Fair, on_simplex, weights_of
from fedjax_pfl.around.robust import Known


def check(case):
  start, models, losses, grads, batches = case.given(
    'start', 'models', 'losses', 'grads', 'batch_losses'
  )
  changes, there = models - start, jnp.ones(len(models), bool)
  known = Known(jnp.asarray(changes @ changes.T), there, 0, there)
  for key in [key for key in case.arrays if key.startswith('qffl/')]:
    q = float(key.removeprefix('qffl/'))
    fair = Fair('qffl', q, case['learning_rate'], None, 1, len(models))
    scale = weights_of(fair, known, jnp.asarray(losses), 0)
    case.check(key, start + scale @ changes)
  fair = Fair('afl', case['learning_rate_lambda'], 0.1, None, 1, len(models))
  weights, means = [jnp.full(len(models), 1 / len(models))], []
  for row in batches:
    means.append(weights_of(fair, known, row, weights[-1]) @ grads)
    weights.append(on_simplex(weights[-1] + fair.strength * row, 0, 1))
  case.check('afl/lambdas', np.stack(weights))
  case.check('afl/gradients', np.stack(means))


def check_weights(case):
  changes, losses = case.given('changes', 'losses')
  number, there = len(changes), jnp.ones(len(changes), bool)
  known = Known(jnp.asarray(changes @ changes.T), there, 0, there)
  for key in [key for key in case.arrays if '/' in key]:
    rule, _, strength = key.partition('/')
    fair = Fair(rule, float(strength), 0.1, None, 1, number)
    change = weights_of(fair, known, jnp.asarray(losses), 0) @ changes
    # Their steps: of a sum of changes of norm 1, and divided by n once more.
    units = {'fedmgda': known.norms.mean(), 'term': number}
    case.check(key, change / units[rule])


CHECKS = {'fair objectives': check, 'fair weights': check_weights}
