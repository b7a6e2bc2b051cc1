"""Local training: the one loop in which a client learns from its own data.

Most methods are a tree, a loss, a mask and a message; `fit` is what they
share. A client runs its own number of steps; a partial last batch is masked,
kept, and exact.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedjax_pfl.core import trees
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
  Watch,
  batches_of_epoch,
  example_batch,
  max_steps_of_epoch,
  steps_of_epoch,
)

# The objective, or a pair of it and a dict of scalars to be reported.
Loss = Callable[[PyTree, Batch, Key], Array | tuple[Array, dict[str, Array]]]


class LocalTraining(NamedTuple):
  """What every federated method is told about its rounds."""

  rounds: int = 32
  epochs: int = 10  # tau: passes over a client's data in one round
  batch_size: int = 50
  learning_rate: optax.Schedule = optax.constant_schedule(0.1)  # of the round
  momentum: float = 0.9  # buffers start anew in every round
  weight_decay: float = 0.0  # added to the gradients of trained leaves
  shuffle: bool = True
  aggregation: str = 'uniform'  # or 'examples': clients weigh n_i
  watch: Watch | None = None  # for analyses: what it returns is a metric

  def batching(self, task: Task) -> Batching:
    return Batching(
      self.batch_size,
      self.epochs,
      task.augment,
      self.shuffle,
      watch=self.watch,
    )

  def sgd(self, clock: Array) -> optax.GradientTransformation:
    """Return m <- beta m + (g + decay p);  p <- p - eta(round) m."""
    sgd = optax.sgd(self.learning_rate(clock), self.momentum or None)
    if not self.weight_decay:
      return sgd
    return optax.chain(optax.add_decayed_weights(self.weight_decay), sgd)

  def weights(self, counts: Array) -> Array:
    """Return how much each client of a cohort counts in the mean: [C]."""
    if self.aggregation == 'uniform':
      return jnp.ones_like(counts)
    # Without any example nobody has moved: any mean will do, but 0 / 0.
    return jnp.where(jnp.any(counts > 0), counts, 1)


AGGREGATIONS = ('uniform', 'examples')


class Diverged(ArithmeticError):
  """A step that lost the numbers; the message says where in it."""


class FitInfo(NamedTuple):
  """What else a fit leaves behind."""

  num_steps: Array  # [] steps that this client ran
  losses: Array  # [max steps] objective before each step, then zeros
  reports: dict[str, Array]  # [max steps] what the loss reports beside it
  opt_state: optax.OptState  # for a method that goes on where it stopped
  watched: PyTree = None  # what Batching.watch returned

  def metrics(self) -> dict[str, Array]:
    mean = jnp.sum(self.losses) / jnp.maximum(self.num_steps, 1)
    more = {} if self.watched is None else {'watched': self.watched}
    return {
      'loss': mean,
      'num_steps': self.num_steps,
      'losses': self.losses,
      **self.reports,
      **more,
    }


def step_schedule(
  learning_rate: float,
  rounds: int,
  drops: tuple[float, ...] = (0.5, 0.75),
  decay: float = 1.0,
) -> optax.Schedule:
  """Return eta(round): a tenth from each of the fractions of all rounds on.

  With `decay`, times decay^(round + 1): the first round has one, too.

  >>> [float(step_schedule(0.1, 32)(r)) for r in (15, 16, 24)]
  """
  boundaries = {int(rounds * drop): 0.1 for drop in drops}
  boundaries.pop(0, None)  # a single round has no half
  steps = optax.piecewise_constant_schedule(learning_rate, boundaries)
  if decay == 1:
    return steps
  return lambda clock: steps(clock) * decay ** (clock + 1)


def freeze_except(
  tx: optax.GradientTransformation, mask: Mask
) -> optax.GradientTransformation:
  """Return tx for the leaves under the mask; the others never move.

  A frozen leaf has no momentum either. (optax.masked would pass the raw
  gradient through to it.)
  """
  labels = jax.tree.map(lambda train: 'train' if train else 'freeze', mask)
  return optax.partition({'train': tx, 'freeze': optax.set_to_zero()}, labels)


def at_steps(
  tx: optax.GradientTransformation, when: Callable[[Array], Array]
) -> optax.GradientTransformation:
  """Return tx for the steps, from 0, that `when` tells; others move nothing.

  What tx remembers, such as momentum, rests in the others. (optax has this
  with a `cond`, which compiles anew wherever a loop runs in Python.)
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


def fit(
  loss: Loss,
  tree: PyTree,
  data: ClientData,
  rng: Key,
  *,
  tx: optax.GradientTransformation,
  batching: Batching,
  opt_state: optax.OptState | None = None,
) -> tuple[PyTree, FitInfo]:
  """Return the tree after the client's epochs of gradient steps.

    tree <- tree + tx(grad loss(tree, batch)),  batches of each epoch in turn

  The key of a step depends on its epoch and number alone. The state of tx
  begins anew, unless one is given. A watch makes room for a copy of the tree
  after every epoch; it changes nothing.
  """
  stops = (batching.epochs,)
  if batching.watch is not None:
    stops = tuple(range(1, batching.epochs + 1))
  models, info = fit_with_snapshots(
    loss,
    tree,
    data,
    rng,
    tx=tx,
    batching=batching,
    stops=stops,
    opt_state=opt_state,
  )
  if batching.watch is not None:
    info = info._replace(watched=batching.watch([tree, *models], data))
  return models[-1], info


def fit_with_snapshots(
  loss: Loss,
  tree: PyTree,
  data: ClientData,
  rng: Key,
  *,
  tx: optax.GradientTransformation,
  batching: Batching,
  stops: tuple[int, ...],
  opt_state: optax.OptState | None = None,
) -> tuple[list[PyTree], FitInfo]:
  """Return one fit as it stands after each of the epochs in `stops`."""
  num_epochs = max(stops)
  steps = steps_of_epoch(data, batching)  # [] this client's own
  slots = np.full(num_epochs, len(stops))  # out of range: not a stop
  slots[np.array(stops) - 1] = np.arange(len(stops))
  loss = _with_reports(loss)
  value_and_grad = jax.value_and_grad(loss, has_aux=True)

  def epoch(number, carry):
    tree, opt_state, values, kept = carry
    order_rng, steps_rng = jax.random.split(jax.random.fold_in(rng, number))
    batch_at = batches_of_epoch(data, order_rng, batching)

    def step(position, carry):
      tree, opt_state, values = carry
      batch, rng = batch_at(position, steps_rng)
      value, grads = value_and_grad(tree, batch, rng)
      updates, opt_state = tx.update(grads, opt_state, tree)
      tree = optax.apply_updates(tree, updates)
      _check_step(number, position, value[0], grads, tree)
      values = jax.tree.map(
        lambda row, one: row.at[number * steps + position].set(one),
        values,
        value,
      )
      return tree, opt_state, values

    tree, opt_state, values = lax.fori_loop(
      0, steps, step, (tree, opt_state, values)
    )
    if len(stops) > 1:
      slot = jnp.asarray(slots)[number]
      kept = jax.tree.map(
        lambda rows, leaf: rows.at[slot].set(leaf, mode='drop'), kept, tree
      )
    return tree, opt_state, values, kept

  max_steps = num_epochs * max_steps_of_epoch(data, batching)
  values = jax.tree.map(
    lambda one: jnp.zeros(max_steps, one.dtype),
    jax.eval_shape(loss, tree, *example_batch(data, rng, batching)),
  )
  copies = jax.tree.map(
    lambda leaf: jnp.zeros((len(stops),) + leaf.shape, leaf.dtype), tree
  )
  tree, opt_state, (losses, reports), kept = lax.fori_loop(
    0,
    num_epochs,
    epoch,
    (
      tree,
      tx.init(tree) if opt_state is None else opt_state,
      values,
      copies if len(stops) > 1 else (),
    ),
  )
  info = FitInfo(num_epochs * steps, losses, reports, opt_state)
  if len(stops) == 1:
    return [tree], info
  return [trees.gather(kept, slot) for slot in range(len(stops))], info


def _check_step(
  epoch: Array, position: Array, loss: Array, grads: PyTree, tree: PyTree
) -> None:
  """Raise where a step that is played in Python loses the numbers.

  In a compiled program there are no numbers yet: it is left as it is.
  """
  if isinstance(loss, jax.core.Tracer):
    return
  parts = ('loss', loss), ('gradient', grads), ('parameters after it', tree)
  for what, part in parts:
    if name := _first_lost(part):
      where = f'{what} ({name})' if part is not loss else what
      raise Diverged(
        f'step {int(position) + 1} of epoch {int(epoch) + 1}, in its {where}'
      )


def _first_lost(tree: PyTree) -> str:
  """Return the name of the first leaf that is not finite, or ''."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    is_floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    if is_floating and not bool(jnp.isfinite(leaf).all()):
      return jax.tree_util.keystr(path, simple=True, separator='/') or 'loss'
  return ''


def _with_reports(loss):
  """Return the loss with the dict that it may report, made empty if none."""

  def pair(*args):
    value = loss(*args)
    return value if isinstance(value, tuple) else (value, {})

  return pair
