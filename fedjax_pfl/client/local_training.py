"""Fit parameters to the data of one client: the local training of all methods.

A method gives `fit` a tree, a loss and an optimiser. Each client runs its own
number of steps; a partial last batch is used, with its padding masked.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedjax_pfl.client import optimisers
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.rules import Rule, equals, one_of
from fedjax_pfl.core.types import (
  Array,
  Batch,
  ClientData,
  Key,
  Mask,
  PyTree,
  Task,
)
from fedjax_pfl.data.batching import (
  Batching,
  batches_of_epoch,
  max_steps_of_epoch,
  steps_in_time,
  steps_of_epoch,
)

# The objective, or a pair of it and a dict of scalar metrics.
Loss = Callable[[PyTree, Batch, Key], Array | tuple[Array, dict[str, Array]]]
MAX_EPOCHS = 100_000  # the loss of every step is kept in memory
SCHEDULE = Rule(
  callable,
  'a function of the round',
  'a number',
  ['pfl.step_schedule(0.1, rounds)', 'optax.constant_schedule(0.1)'],
)


@record()
class LocalTraining:
  """What a client of the cohort does in a round, for all methods alike.

  Args:
    rounds: T, of the whole method.
    epochs: tau, passes over a client's data in one round
    steps: of every client in one round, instead of epochs: batches of one pass
      after another; 0: epochs count
    batch_size: B, examples of a step
    learning_rate: round [] -> eta [].
    momentum: of SGD, and beta_1 of Adam; buffers start anew in every round
    weight_decay: times the parameter, is added to the gradient of each trained
      leaf (L2); with adamw to the update
    shuffle: whether each epoch has a new order of the examples.
    aggregation: weights of clients in a mean: uniform, 1 / m; examples,
      n_i / n.
    optimizer: of the rounds; fine-tuning is SGD
    clip_norm: largest norm of a step's gradient, or of each part of it that has
      an optimiser of its own; 0: any

  >>> schedule = pfl.step_schedule(0.1, 8)
  >>> train = pfl.LocalTraining(rounds=8, epochs=2, learning_rate=schedule)
  >>> fedavg = pfl.algorithm('fedavg')
  >>> fedavg.HParams(train=train).train.batch_size
  50
  """

  rounds: int = 32
  epochs: int = field(
    10, rules.count('epochs'), name='local_epochs', largest=MAX_EPOCHS
  )
  steps: int = field(0, rules.count('steps', smallest=0), name='local_steps')
  batch_size: int = field(50, rules.count('examples'))
  learning_rate: optax.Schedule = field(
    optax.constant_schedule(0.1), SCHEDULE, in_config=False
  )
  momentum: float = field(0.9, rules.momentum(), traced=True)
  weight_decay: float = field(0.0, rules.at_least(0), traced=True)
  shuffle: bool = True
  aggregation: str = field(
    'uniform', one_of(('uniform', 'examples')), in_config=False
  )
  optimizer: str = field('sgd', one_of(optimisers.OPTIMISERS))
  clip_norm: float = field(0.0, rules.at_least(0))

  def batching(self, task: Task) -> Batching:
    """Return the batches of one round, augmented as the task has it."""
    batching = Batching(self.batch_size, self.epochs, task.augment)
    if self.steps:
      batching = batching._replace(epochs=1, steps=lambda batches: self.steps)
    return batching._replace(shuffle=self.shuffle)

  def sgd(self, clock: Array) -> optax.GradientTransformation:
    """Return the optimiser of a round, by default SGD; its state starts anew.

    g <- g min(1, clip / |g|)      if clip_norm > 0
    sgd    m <- beta m + (g + decay p);     p <- p - eta m
    adam   optax.adam of g + decay p, beta_1 = momentum
    adamw  optax.adamw: p <- p - eta (adam(g) + decay p)

    The norm is that of all leaves that the optimiser trains: a method with an
    optimiser for each of two parts clips each.
    """
    rate, beta = self.learning_rate(clock), self.momentum
    decay, parts = self.weight_decay, []
    if self.clip_norm:
      parts.append(optax.clip_by_global_norm(self.clip_norm))
    if self.optimizer != 'adamw' and not equals(decay, 0):
      parts.append(optax.add_decayed_weights(decay))
    if self.optimizer == 'sgd':
      parts.append(optimisers.sgd(rate, beta))
    elif self.optimizer == 'adam':
      parts.append(optax.adam(rate, b1=beta))
    else:
      parts.append(optax.adamw(rate, b1=beta, weight_decay=decay))
    return optax.chain(*parts) if len(parts) > 1 else parts[0]

  def fit(
    self,
    task: Task,
    params: PyTree,
    data: ClientData,
    rng: Key,
    clock: Array,
    loss: Loss | None = None,
    tx: optax.GradientTransformation | None = None,
    batching: Batching | None = None,
    opt_state: optax.OptState | None = None,
    part: Mask | None = None,
  ) -> tuple[PyTree, 'FitInfo']:
    """Return SGD_tau(params; data): the fit of one round of most methods.

    part: the leaves that are trained; by default all.
    """
    tx = tx or self.sgd(clock)
    return fit(
      loss or task.loss,
      params,
      data,
      rng,
      tx=tx if part is None else optimisers.freeze_except(tx, part),
      batching=batching or self.batching(task),
      opt_state=opt_state,
      part=part,
    )

  def weights(self, counts: Array) -> Array:
    """Return the weights a_i of a cohort with n_i = `counts`: [C]."""
    if self.aggregation == 'uniform':
      counts = (counts > 0).astype(counts.dtype)
    # Without any example no client has trained: avoid 0 / 0.
    return jnp.where(jnp.any(counts > 0), counts, 1)


class FitInfo(NamedTuple):
  """The results of a fit, in addition to the tree."""

  num_steps: Array  # [] of this client
  losses: Array  # [max steps] objective before each step, then zeros
  reports: dict[str, Array]  # [max steps] the metrics that the loss returns
  opt_state: optax.OptState  # after the last step
  snapshots: tuple[PyTree, ...] = ()  # the trees after the epochs of `stops`

  def metrics(self) -> dict[str, Array]:
    """Return the metrics of `local_update`; 'loss' is the mean of losses."""
    steps, losses = self.num_steps, self.losses
    mean = jnp.sum(losses) / jnp.maximum(steps, 1)
    return {'loss': mean, 'num_steps': steps, 'losses': losses, **self.reports}


def fit(
  loss: Loss,
  tree: PyTree,
  data: ClientData,
  rng: Key,
  *,
  tx: optax.GradientTransformation,
  batching: Batching,
  opt_state: optax.OptState | None = None,
  stops: tuple[int, ...] = (),
  part: Mask | None = None,
) -> tuple[PyTree, FitInfo]:
  """Return the tree after the client's epochs of gradient steps.

    tree <- tree + tx(grad loss(tree, batch)),  batches of each epoch in turn

  and running statistics of BatchNorm, if any, by `optimisers.moving`.
  The key of a step depends only on `rng`, its epoch and its number. With
  `data.work` the steps end early, after that share of them. The share is a part
  of the data because settings are the same for all clients; a method with two
  fits shortens both in proportion.

  Args:
    loss: (tree, batch, key) -> the objective [], or a pair of it and a dict of
      scalar metrics; batch.x is [B, ...].
    tree: the parameters before the first step.
    data: the examples of this client: index [N], count [].
    rng: the key of the fit.
    tx: the optimiser of the tree.
    batching: the batches of an epoch, and the number of epochs.
    opt_state: the state of tx; None: a new one.
    stops: numbers of epochs after which the tree is kept, in the place of the
      batching's one; the fit ends with the largest.
    part: the leaves that tx moves, if not all. The others are no state of the
      loops, so that clients side by side read the same array.

  Returns:
    The tree after the last step, and a `FitInfo` with the number of steps [],
    the losses [max steps] and the state of tx.

  >>> data = pfl.ClientData(
  ...   jnp.zeros((4, 2, 2, 1)), jnp.zeros(4, int), jnp.arange(4), jnp.array(4)
  ... )
  >>> batching = pfl.Batching(size=2, epochs=1, transform=lambda x, rng: x)
  >>> loss, start = lambda w, batch, rng: w**2, jnp.array(1.0)
  >>> w, info = pfl.fit(
  ...   loss, start, data, jax.random.key(0),
  ...   tx=optax.sgd(0.25), batching=batching
  ... )
  >>> float(w), int(info.num_steps), info.losses.tolist()
  (0.25, 2, [1.0, 0.25])
  """
  stops = stops or (batching.epochs,)
  num_epochs = max(stops)
  steps = steps_of_epoch(data, batching)  # [] this client's own
  loss, tx = _with_reports(loss), optimisers.moving(tx, tree)
  num_steps = steps_in_time(data, batching, num_epochs * steps)
  moved = whole = lambda tree: tree
  if part is not None:
    part = norm_stats.with_all(part)  # which move in any case
    frozen = trees.select(tree, trees.invert(part))
    moved = lambda tree: trees.select(tree, part)
    whole = lambda moved: trees.combine(moved, frozen)
  run_epoch = _make_epoch(
    loss, data, rng, tx, batching, steps, num_steps, moved, whole
  )

  values = _rows_of_values(loss, tree, data, rng, batching, num_epochs)
  opt_state = tx.init(tree) if opt_state is None else opt_state
  state = moved(tree), opt_state, values
  if len(stops) == 1:
    state = lax.fori_loop(0, num_epochs, run_epoch, state)
    kept = [state[0]]
  else:

    def advance(state, epochs):
      state = lax.fori_loop(*epochs, run_epoch, state)
      return state, state[0]

    ends = np.sort(stops)
    spans = np.append(0, ends[:-1]), ends
    state, rows = lax.scan(advance, state, spans)
    kept = [trees.gather(rows, np.searchsorted(ends, n)) for n in stops]
  last, opt_state, (losses, reports) = state
  kept = tuple(map(whole, kept))
  return whole(last), FitInfo(num_steps, losses, reports, opt_state, kept)


def _make_epoch(loss, data, rng, tx, batching, steps, limit, moved, whole):
  """Return (number, state) -> state, the steps of one epoch within the limit.

  The state is (the part of the tree that is moved, state of tx, values of the
  loss in all steps); `whole` gives the tree of such a part.
  """
  value_and_grad = jax.value_and_grad(loss, has_aux=True)

  def run_epoch(number, state):
    order_rng, steps_rng = jax.random.split(jax.random.fold_in(rng, number))
    batch_at = batches_of_epoch(data, order_rng, batching)

    def step(position, state):
      part, opt_state, values = state
      batch, rng = batch_at(position, steps_rng)
      tree = whole(part)
      value, grads = value_and_grad(tree, batch, rng)
      updates, opt_state = tx.update(grads, opt_state, tree)
      tree = optax.apply_updates(tree, updates)
      _check_step(number, position, value[0], grads, tree)
      values = trees.scatter(values, number * steps + position, value)
      return moved(tree), opt_state, values

    in_time = steps
    if data.work is not None:  # a deadline
      in_time = jnp.clip(limit - number * steps, 0, steps)
    return lax.fori_loop(0, in_time, step, state)

  return run_epoch


class NotFinite(ArithmeticError):
  """A step with a value that is not finite; the message names its place."""


def _check_step(epoch, position, loss, grads, tree):
  """Raise NotFinite if the loss, a gradient or a parameter is not finite.

  Where training runs in Python: a compiled program has no values to check.
  """
  if isinstance(loss, jax.core.Tracer):
    return
  parts = {'loss': loss, 'gradient': grads, 'parameters after it': tree}
  for what, part in parts.items():
    for name, leaf in trees.named(part).items():
      if not jnp.isfinite(leaf).all():
        where = f'{what} ({name})' if name else what
        raise NotFinite(
          f'step {int(position) + 1} of epoch {int(epoch) + 1}, in its {where}'
        )


def _rows_of_values(loss, tree, data, rng, batching, num_epochs):
  """Return zeros for what the loss returns in each step: [max steps]."""
  max_steps = num_epochs * max_steps_of_epoch(data, batching)
  first = lambda: batches_of_epoch(data, rng, batching)(0, rng)
  values = jax.eval_shape(lambda: loss(tree, *first()))
  return jax.tree.map(lambda value: jnp.zeros(max_steps, value.dtype), values)


def _with_reports(loss):
  """Return the loss with a dict of metrics, which is empty if it has none."""

  def pair(*args):
    value = loss(*args)
    return value if isinstance(value, tuple) else (value, {})

  return pair
