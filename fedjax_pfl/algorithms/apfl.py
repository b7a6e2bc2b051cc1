"""APFL (Deng et al. 2020): each client mixes the global and a private model.

  m_i     =  alpha_i v_i + (1 - alpha_i) w_i             weights, not logits
  w_i     <- w_i - eta grad L_i(w_i)                     w_i from w each round
  v_i     <- v_i - eta alpha_i grad L_i(m_i)             for i in the cohort S
  alpha_i <- clip(alpha_i - eta <v_i - w_i, grad L_i(m_i)>, 0, 1)
  w       <- sum_i a_i w_i / sum_i a_i                   a_i = 1 or n_i

All right sides are those before the step, on one batch. Momentum is that of
`train`, apart for w and v; alpha has none. A client keeps v_i, which begins as
w, and alpha_i; both rest while it does. Only w_i travels, and it never sees
v_i: the global model is FedAvg's. The view 'personal' mixes v_i with the
newest w.

order 'sequential' has w_i step first, and v_i and alpha_i then use the new w_i
on the same batch, as the authors' later code does. That code adapts alpha in
the first step of a round alone: adapt 'first_step'.

protocol 'released' is what the last public code of SuPerFed calls APFL:

  v_i     <- v_i - eta (alpha grad L_i(alpha v_i + (1 - alpha) w) + decay v_i)

with alpha = 0.25 for ever, and w, not w_i, as the round began. What adds to the
product of a kernel, its bias, exists once: it is that of w.

Differs from the paper: SGD with momentum by default; whole epochs of batches;
the weights a_i. `losses` are L_i(w_i), `mixed_losses` L_i(m_i), `alphas` what
alpha was; each before the step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage, check_protocol
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Mask, Params, Task

ADAPTATIONS = ('every_step', 'first_step', 'never')
ORDERS = ('simultaneous', 'sequential')


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  alpha: float | None = None  # to begin with; None: 0.5, released 0.25
  adapt: str = 'every_step'  # paper: or of a round the 'first_step'; 'never'
  order: str = 'simultaneous'  # paper: or 'sequential'
  protocol: str = 'paper'  # or 'released'
  private_decay: float = 1e-4  # released: of v; w has that of train


FEDAVG_EQUIVALENT = {}  # always, on its global model
PRIVATE_LEAVES = ('private', 'alpha')


class Server(NamedTuple):
  round: Array
  params: Params


class Client(NamedTuple):
  private: Params  # v; released: without the biases of kernels
  alpha: Array  # []


class Trained(NamedTuple):
  """What a client trains, and whose turn it is."""

  shared: Params  # w_i
  private: Params  # v_i
  alpha: Array  # []
  turn: Array  # [] sequential: 0. is that of w_i, 1. of v_i and alpha_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of APFL."""
  _check(hp)
  released = hp.protocol == 'released'
  sequential = hp.order == 'sequential' and not released
  twins = _twins(task) if released else trees.everything(task.is_head)
  batching = hp.train.batching(task)._replace(
    steps_per_batch=2 if sequential else 1
  )

  def local_update(server, client, data, rng):
    loss = make_loss(task, server.params if released else None)
    tree, info = local_training.fit(
      in_turns(task) if sequential else loss,
      Trained(server.params, *client, jnp.zeros(())),
      data,
      rng,
      tx=make_optimiser(hp, server.round),
      batching=batching,
    )
    info = _of_pairs(info) if sequential else info
    client = Client(tree.private, tree.alpha)
    num_steps = 2 * info.num_steps  # one of w and one of v
    return client, tree.shared, {**info.metrics(), 'num_steps': num_steps}

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean)

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: Client(
      trees.select(server.params, twins), jnp.asarray(first_alpha(hp), float)
    ),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': mix(client.private, server.params, client.alpha),
    },
    predict=task.logits,
    global_model=lambda server: server.params,
  )
  return (Stage('apfl', hp.train.rounds, algorithm),)


def first_alpha(hp: HParams) -> float:
  """Return alpha as it begins; released, it stays so."""
  if hp.alpha is not None:
    return hp.alpha
  return 0.25 if hp.protocol == 'released' else 0.5


def mix(private: Params, shared: Params, alpha: Array) -> Params:
  """Return alpha v + (1 - alpha) w, and w where v has holes."""
  return jax.tree.map(
    lambda v, w: w if v is None else alpha * v + (1 - alpha) * w,
    private,
    shared,
    is_leaf=lambda leaf: leaf is None,
  )


def make_loss(task: Task, start: Params | None = None) -> local_training.Loss:
  """Return L(w), with the gradients of L(w) and of L(m) for v and alpha.

  m has `start` in the place of w, if that is given.
  """

  def loss(tree, batch, rng):
    shared = task.loss(tree.shared, batch, rng)
    other = lax.stop_gradient(tree.shared) if start is None else start
    mixed = task.loss(mix(tree.private, other, tree.alpha), batch, rng)
    # Of the mixture the gradient counts alone: a sum would be no model's loss.
    value = shared + (mixed - lax.stop_gradient(mixed))
    return value, {'mixed_losses': mixed, 'alphas': tree.alpha}

  return loss


def in_turns(task: Task) -> local_training.Loss:
  """Return L of the model whose turn it is: w, or the mixture with it."""

  def loss(tree, batch, rng):
    other = lax.stop_gradient(tree.shared)
    mixed = mix(tree.private, other, tree.alpha)
    params = jax.tree.map(
      lambda m, w: jnp.where(tree.turn > 0, m, w), mixed, tree.shared
    )
    return task.loss(params, batch, rng), {'alphas': tree.alpha}

  return loss


def make_optimiser(hp: HParams, clock: Array) -> optax.GradientTransformation:
  """Return the steps of w, v and alpha, at once or by turns."""
  released = hp.protocol == 'released'
  decay = hp.private_decay if released else hp.train.weight_decay
  shared = hp.train.sgd(clock)
  private = hp.train._replace(weight_decay=decay).sgd(clock)
  alpha = optax.chain(
    optax.sgd(hp.train.learning_rate(clock)), into_unit_interval()
  )
  turn = optax.set_to_zero()
  if released or hp.adapt == 'never':
    alpha = optax.set_to_zero()
  elif hp.adapt == 'first_step':
    alpha = local_training.at_steps(alpha, lambda step: step == 0)
  if hp.order == 'sequential' and not released:
    shared = local_training.at_steps(shared, lambda step: step % 2 == 0)
    private, alpha = (
      local_training.at_steps(tx, lambda step: step % 2 == 1)
      for tx in (private, alpha)
    )
    turn = pass_on()
  steps = {'w': shared, 'v': private, 'alpha': alpha, 'turn': turn}
  return optax.partition(steps, Trained('w', 'v', 'alpha', 'turn'))


def into_unit_interval() -> optax.GradientTransformation:
  """Return updates that lead to clip(parameter + update, 0, 1)."""
  return optax.stateless(
    lambda updates, params: jax.tree.map(
      lambda update, own: jnp.clip(own + update, 0, 1) - own, updates, params
    )
  )


def pass_on() -> optax.GradientTransformation:
  """Return the updates that lead from 0 to 1, and back."""
  return optax.stateless(
    lambda updates, params: jax.tree.map(lambda turn: 1 - 2 * turn, params)
  )


def _of_pairs(info):
  """Return what two steps on each batch leave behind, batch by batch."""
  shared, mixed = info.losses.reshape(-1, 2).T
  reports = {'mixed_losses': mixed, 'alphas': info.reports['alphas'][::2]}
  return info._replace(
    num_steps=info.num_steps // 2, losses=shared, reports=reports
  )


def _twins(task: Task) -> Mask:
  """Return False for the biases beside kernels, which exist once."""
  names = trees.leaf_names(task.is_head)
  twice = [
    f'{name.removesuffix("bias")}kernel' not in names
    or not name.endswith('bias')
    for name in names
  ]
  return jax.tree.unflatten(jax.tree.structure(task.is_head), twice)


def _check(hp):
  """Refuse what is no mixture, no way to train it, or no decay."""
  check_protocol(hp.protocol)
  if not (hp.alpha is None or 0 <= hp.alpha <= 1):
    raise bad_input(
      'hp.alpha',
      got=hp.alpha,
      expected='the share of the private model, from 0 to 1, or None: that of '
      'the protocol',
      cause='a percentage, or the learning rate, which is train.learning_rate',
    )
  for field, choices in (('adapt', ADAPTATIONS), ('order', ORDERS)):
    if getattr(hp, field) not in choices:
      raise bad_input(
        f'hp.{field}',
        got=getattr(hp, field),
        expected='a way in which a step treats the mixture',
        choices=choices,
        cause='a typing error',
      )
  if not hp.private_decay >= 0:
    raise bad_input(
      'hp.private_decay',
      got=hp.private_decay,
      expected='a number, 0 or more',
      cause='a sign: it is a penalty, written as a positive number',
    )
