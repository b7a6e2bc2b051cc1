"""Server optimisers (Reddi et al. 2021): a gradient from the mean of a round.

  D <- aggregate(w_1, ..., w_C) - w             as the method aggregates
  sgd      m <- beta_1 m + D;                   w <- w + eta_s m
  adagrad  v <- v + D^2
  adam     v <- beta_2 v + (1 - beta_2) D^2
  yogi     v <- v - (1 - beta_2) D^2 sign(v - D^2)
           m <- beta_1 m + (1 - beta_1) D
           w <- w + eta_s m / (sqrt(v) + tau)

m begins at 0, v at tau^2, and neither is corrected for its beginning. `sgd`
with beta_1 = 0 and eta_s = 1 changes nothing but rounding; with beta_1 > 0 it
is FedAvgM (Hsu et al. 2019).

The method's server has a model `params`, of which D is 0 where nothing is
uploaded; one of one stage that never changes `params` is refused when its first
round is traced. Momentum moves it where D is 0, too: also a model of IFCA that
nobody chose. Running statistics of BatchNorm are the mean itself.
"""

import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.around.lifted import in_field, lifted
from fedjax_pfl.core import norm_stats, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.types import Array, Params

SERVER_OPTIMISERS = ('sgd', 'adagrad', 'adam', 'yogi')


FIELD = 'optimiser'  # of the server, with this state
NONE = 'none'


@record('server_')
class ServerOptimiser:
  """What the server does with the mean change of a round.

  Args:
    name: the optimiser, whose gradient is the mean change of a round; none: the
      server takes the mean itself
    learning_rate: of the server's optimiser; 1 suits sgd, 0.01 the others
    beta_1: momentum of the server's optimiser
  """

  name: str = field(
    NONE, rules.one_of((NONE, *SERVER_OPTIMISERS)), name='server_optimizer'
  )
  learning_rate: float = field(
    1.0, rules.above(0), needs=('server_optimizer', 'sgd')
  )
  beta_1: float = field(
    0.9,
    rules.momentum(),
    needs=('server_optimizer', 'sgd'),
    name='server_momentum',
  )
  beta_2: float = field(0.99, rules.momentum(), in_config=False)
  tau: float = field(1e-3, rules.above(0), in_config=False)

  def __bool__(self) -> bool:
    return self.name != NONE


class State(NamedTuple):
  m: Params
  v: Params


def step(
  optimiser: ServerOptimiser, params: Params, mean: Params, state: State
) -> tuple[Params, State]:
  """Return the server's model and state, from what the method aggregates."""
  change = jax.tree.map(jnp.subtract, mean, params)
  beta_1, rate = optimiser.beta_1, optimiser.learning_rate
  if optimiser.name == 'sgd':
    m = jax.tree.map(lambda m, d: beta_1 * m + d, state.m, change)
    moved = jax.tree.map(lambda w, m: w + rate * m, params, m)
    return norm_stats.taken_from(mean, moved), State(m, state.v)

  def second_moment(v: Array, d: Array) -> Array:
    square, share = d**2, 1 - optimiser.beta_2
    if optimiser.name == 'adagrad':
      return v + square
    if optimiser.name == 'adam':
      return v - share * (v - square)
    return v - share * square * jnp.sign(v - square)

  m = jax.tree.map(lambda m, d: beta_1 * m + (1 - beta_1) * d, state.m, change)
  v = jax.tree.map(second_moment, state.v, change)
  moved = jax.tree.map(
    lambda w, m, v: w + rate * m / (jnp.sqrt(v) + optimiser.tau), params, m, v
  )
  return norm_stats.taken_from(mean, moved), State(m, v)


# ---- As a wrapper of a method ------------------------------------------------


def optimised(
  stage: Stage, optimiser: ServerOptimiser, alone: bool = True
) -> Stage:
  """Return the stage with a server that takes steps of this optimiser.

  alone: whether the method has no other stage; of several one averages models.
  """
  method = stage.algorithm

  def begin(server, rng, previous):
    if not hasattr(server, 'params'):
      refuse()
    if hasattr(server, FIELD):
      refuse('whose server has an optimiser')
    v = optax.tree.full_like(server.params, optimiser.tau**2)
    return State(optax.tree.zeros_like(server.params), v)

  def refuse(why='whose server has no model'):
    raise bad_input(
      'server_optimizer',
      got=f'{optimiser.name} with {stage.name}, {why}',
      expected='none with this method, or a method that averages models',
      choices=['server_optimizer=none'],
    )

  kept = in_field(FIELD, begin)

  def aggregate(server, up, senders):
    before, state = kept.split(server)
    after = method.aggregate(before, up, senders)
    leaves = map(jax.tree.leaves, (after.params, before.params))
    if alone and all(map(operator.is_, *leaves)):
      refuse()
    params, state = step(optimiser, before.params, after.params, state)
    return kept.join(after._replace(params=params), state)

  stage = lifted(stage, server=kept)
  # No `wraps`: its page shows this source.
  algorithm = stage.algorithm._replace(aggregate=aggregate)
  return stage._replace(algorithm=algorithm)
