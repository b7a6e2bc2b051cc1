"""Learning rates of the rounds, and optimisers of some leaves or some steps."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.core import norm_stats
from fedjax_pfl.core.rules import above, equals, is_number, plain, tuple_of
from fedjax_pfl.core.types import Array, Mask, PyTree

OPTIMISERS = ('sgd', 'adam', 'adamw')  # of local training
LEARNING_RATE = above(0, expected='a learning rate above 0')
DROPS = tuple_of(
  lambda value: is_number(value) and 0 < value < 1,
  'fractions of all rounds, between 0 and 1',
  'rounds instead of fractions, or a single number: write (0.5,)',
)


def step_schedule(
  learning_rate: float,
  rounds: int,
  drops: tuple[float, ...] = (0.5, 0.75),
  decay: float = 1.0,
) -> optax.Schedule:
  """Return eta(round): constant, then divided by 10 at each of the drops.

  Args:
    learning_rate: eta of the first rounds.
    rounds: T, of the whole run.
    drops: fractions of T; from round floor(drop T) on eta is a tenth. Drops in
      the same round are one, as in the public code of FedBABU; the product is
      that of float64.
    decay: another factor, decay^(round + 1), of every round.

  Returns:
    round [] -> eta [].

  >>> schedule = pfl.step_schedule(0.1, 32)
  >>> [round(float(schedule(r)), 4) for r in (0, 15, 16, 24)]
  [0.1, 0.1, 0.01, 0.001]
  """
  LEARNING_RATE.check('learning_rate', plain(learning_rate))
  DROPS.check('drops', tuple(drops))
  boundaries = {int(rounds * drop): 0.1 for drop in drops}
  boundaries.pop(0, None)  # a drop in round 0: with one round, 0.5 * 1 is 0
  steps = optax.piecewise_constant_schedule(learning_rate, boundaries)
  if equals(decay, 1):
    return steps
  return lambda clock: steps(clock) * decay ** (clock + 1)


def sgd(
  learning_rate: Array | optax.Schedule, momentum: float
) -> optax.GradientTransformation:
  """Return m <- beta m + g;  p <- p - eta m, without m where beta is 0."""
  return optax.sgd(learning_rate, None if equals(momentum, 0) else momentum)


def freeze_except(
  tx: optax.GradientTransformation, mask: Mask
) -> optax.GradientTransformation:
  """Return tx for the leaves under the mask; the others are frozen.

  A frozen leaf has no momentum either; optax.masked would add its gradient.

  Args:
    tx: the optimiser of the trained leaves.
    mask: bools in the structure of the parameters; True: is trained.

  Returns:
    The optimiser of all leaves.

  >>> params = {'body': jnp.ones(2), 'head': jnp.ones(2)}
  >>> tx = pfl.freeze_except(optax.sgd(0.5), {'body': True, 'head': False})
  >>> updates, _ = tx.update(params, tx.init(params))
  >>> updates['body'].tolist(), updates['head'].tolist()
  ([-0.5, -0.5], [0.0, 0.0])
  """
  labels = jax.tree.map(lambda train: 'train' if train else 'freeze', mask)
  return optax.partition({'train': tx, 'freeze': optax.set_to_zero()}, labels)


def at_steps(
  tx: optax.GradientTransformation, when: Callable[[Array], Array]
) -> optax.GradientTransformation:
  """Return tx for the steps (from 0) where `when` holds, else updates of 0.

  In the other steps the state of tx, such as momentum, does not change. (optax
  has this with a `cond`, which compiles anew wherever a loop runs in Python.)
  """

  def update(updates, state, params=None):
    step, inner = state
    new = tx.update(updates, inner, params)
    still = optax.tree.zeros_like(updates), inner
    pick = partial(jnp.where, when(step))
    updates, inner = jax.tree.map(pick, new, still)
    return updates, (step + 1, inner)

  return optax.GradientTransformation(
    lambda params: (jnp.zeros((), jnp.int32), tx.init(params)), update
  )


def moving(
  tx: optax.GradientTransformation, tree: PyTree
) -> optax.GradientTransformation:
  """Return tx for what is learned, and the average of running statistics.

    r <- 0.9 r + 0.1 statistic of the batch

  These enter neither momentum nor the norm of a gradient, and are not frozen.
  """
  if not norm_stats.names_of(tree):
    return tx

  def update(grads, state, params=None):
    zeros = optax.tree.zeros_like(grads)
    still = norm_stats.taken_from(zeros, grads)
    updates, state = tx.update(still, state, params)
    steps = optax.tree.scale(-norm_stats.MOMENTUM, grads)
    return norm_stats.taken_from(steps, updates), state

  return optax.GradientTransformation(tx.init, update)
