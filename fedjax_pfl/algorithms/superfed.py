"""SuPerFed (Hahn, Jeong and Lee 2022): two models on a line of low loss.

Of every tensor t that exists twice a client has w_t, which is shared, and v_t,
which it keeps. It trains, and is evaluated by, mixtures of the two:

  W_t(lambda) = (1 - lambda_t) w_t + lambda_t v_t

  federation       w_i      <- SGD_tau(w -> L_i(w) + mu D(w, w^g))
  personalisation  w_i, v_i <- SGD_tau(w, v -> L_i(W(lambda)) + mu D(w, w^g)
                                               + nu cos^2(w, v))
  after both       w^g      <- sum_i a_i w_i / sum_i a_i    a_i = 1 or n_i

  D(w, w^g) = sum_t |w_t - w^g_t|^2

from w = w^g, for i in the cohort; v_i begins as another random model. The first
L R of all R rounds are federation, L = `phase_start`, in which v_i does not
change; L = 1 never mixes. lambda ~ U(0, 1) is drawn anew in every step: one
number ('model', SuPerFed-MM) or one for each module of the network ('layer',
SuPerFed-LM: the scale and the shift of a BatchNorm have the same). cos is that
of all tensors with twins, taken as one vector.

`twice`: 'kernels', as in the first version of the paper, whose biases exist
once and belong to w; or 'all', as in the final networks, which have no biases.
`local_init`: v_i is drawn for each 'client', or one is 'shared', as in the
first code. `pairing`: a client is evaluated by its v_i and the server's w^g
('fresh'), or, as the first code evaluates clients outside the cohort, by the
w_i that it last trained and then keeps ('stale').

Views: 'initial' is w^g; 'mix_0.5' is W(0.5), the same lambda for all tensors,
for every number of `grid`. The metrics `cross_entropies`, `proximities` (D,
without its factor) and `squared_cosines` are the terms of `losses`.

protocols 'first_code' and 'final_code': the two public codes.

New client: v_i begins as for all others and is trained with w^g for one round
of the last stage, of which nothing is sent.

Differs from the paper: the weights a_i are 1 by default; those of the codes,
with their momentum and their decay of learning rate and weights, are settings.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax

from fedjax_pfl.client import global_model, local_training
from fedjax_pfl.core import losses, norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Key, Mask, Params, PyTree, Task

FORM = 'a form of SuPerFed'
GRID = rules.Rule(
  lambda grid: (
    isinstance(grid, tuple | list)
    and all(rules.is_number(ratio) and 0 <= ratio <= 1 for ratio in grid)
    and all(low < high for low, high in pairwise(grid))
  ),
  "rising mixing ratios, from 0 (the server's) to 1 (the client's own)",
  'a ratio twice, percentages, or another order',
)


class HParams(global_model.HParams):
  mixing: str = field(  # or 'layer'
    'model', rules.one_of(('model', 'layer'), FORM)
  )
  mu: float = field(0.01, rules.at_least(0), traced=True)
  nu: float = field(2.0, rules.at_least(0), traced=True)
  phase_start: float = field(  # L: the share of rounds before personalisation
    0.4, rules.share('a round, or a percentage of them')
  )
  grid: tuple[float, ...] = field(
    tuple(tenth / 10 for tenth in range(11)), GRID
  )
  protocol: str = field(  # or 'first_code', 'final_code'
    'paper', rules.protocol(('paper', 'first_code', 'final_code'))
  )
  twice: str = field(  # or 'all'
    'kernels', rules.one_of(('kernels', 'all'), FORM)
  )
  local_init: str = field(  # or 'shared'
    'client', rules.one_of(('client', 'shared'), FORM)
  )
  pairing: str = field(  # or 'stale'
    'fresh', rules.one_of(('fresh', 'stale'), FORM)
  )


FAMILY, PAPER = 'mixtures', 'arxiv.org/abs/2109.07628'
FEDAVG_EQUIVALENT = {'mu': 0.0, 'phase_start': 1.0}
PRIVATE_LEAVES = ('local',)


class Server(NamedTuple):
  round: Array
  params: Params  # w^g
  local_key: Array  # [2] bits of the key of all v_i, if they are shared


class Client(NamedTuple):
  local: Params  # v_i, with holes for what exists once
  federated: Params | tuple = ()  # w_i, for pairing 'stale' alone


def check_start(hp: HParams, start: str) -> None:
  """Refuse the model of another run: it would be both w and v of a client."""
  if start:
    raise bad_input(
      'init_from',
      got=start,
      expected="'': the two models of a client have to begin apart; where they "
      'are equal their cosine has no gradient',
    )


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the stages of SuPerFed: federation, then personalisation."""
  is_stale = hp.pairing == 'stale'

  def federate(down, client, data, rng):
    loss = federated_objective(task, hp, down.params)
    params, info = hp.train.fit(task, down.params, data, rng, down.round, loss)
    client = Client(client.local, params if is_stale else ())
    return client, params, info.metrics()

  def personalise(down, client, data, rng):
    loss = mixed_objective(task, hp, down.params)
    pair = Client(client.local, down.params)
    pair, info = hp.train.fit(task, pair, data, rng, down.round, loss)
    client = pair if is_stale else Client(pair.local)
    return client, pair.federated, info.metrics()

  federation = pair_algorithm(task, hp, federate)
  personalisation = federation._replace(local_update=personalise)
  first, early = hp.train.rounds, READINGS[hp.protocol].rounds_early
  if hp.phase_start != 1:
    first = max(int(hp.phase_start * first) - early, 0)
  stages = (
    Stage('federation', first, federation),
    Stage('personalisation', hp.train.rounds - first, personalisation),
  )
  return tuple(stage for stage in stages if stage.rounds) or stages[1:]


def pair_algorithm(
  task: Task, hp: HParams, local_update: Callable
) -> Algorithm:
  """Return FedAvg of w whose clients keep v_i, and w_i for stale pairs."""
  averaging = global_model.federated_averaging(task, hp, local_update)
  twins, is_stale = twin_mask(task, hp.twice), hp.pairing == 'stale'

  def init_server(rng):
    local_key = jax.random.key_data(jax.random.fold_in(rng, 1))
    return Server(*averaging.init_server(rng), local_key)

  def init_client(server, data, rng):
    if hp.local_init == 'shared':
      rng = jax.random.wrap_key_data(server.local_key)
    local = trees.select(task.init(rng), twins)
    return Client(local, server.params if is_stale else ())

  def aggregate(server, uploads, senders):
    mean = averaging.aggregate(server, uploads, senders)
    return Server(*mean, server.local_key)

  def views(server, client, data, rng):
    params = client.federated if is_stale else server.params
    mixtures = {
      f'mix_{float(ratio)}': between(params, client.local, ratio)
      for ratio in hp.grid
    }
    return {'initial': server.params, **mixtures}

  return averaging._replace(
    init_server=init_server,
    init_client=init_client,
    aggregate=aggregate,
    personalize=views,
  )


def federated_objective(
  task: Task, hp: HParams, start: Params
) -> local_training.Loss:
  """Return w -> L(w) + mu D(w, w^g), where w^g is `start`."""
  proximity = make_proximity(task, hp, start)

  def loss(params, batch, rng):
    cross_entropy, distance = task.loss(params, batch, rng), proximity(params)
    reports = {'cross_entropies': cross_entropy, 'proximities': distance}
    return cross_entropy + hp.mu * distance, reports

  return loss


def mixed_objective(
  task: Task, hp: HParams, start: Params
) -> local_training.Loss:
  """Return (v, w) -> L(W(lambda)) + mu D(w, w^g) + nu cos^2(w, v).

  The forward pass has the key as given: with lambda = 0 it is that of w.
  """
  reading, twins = READINGS[hp.protocol], twin_mask(task, hp.twice)
  proximity = make_proximity(task, hp, start)
  numbers = lambda_numbers(twins, hp.mixing)
  num_ratios = 1 + max(jax.tree.leaves(numbers))
  has_factor = reading.has_factor and hp.mixing == 'model'

  def loss(pair, batch, rng):
    drawn = draw_ratios(jax.random.fold_in(rng, 1), num_ratios)
    ratios = jax.tree.map(lambda number: drawn[number], numbers)
    mixed = mix(pair.federated, pair.local, ratios)
    cross_entropy = task.loss(mixed, batch, rng)
    distance = proximity(pair.federated)
    cosine = losses.squared_cosine(
      trees.select(pair.federated, twins), pair.local, reading.offset
    )
    pull = hp.mu * ((1 - drawn[0]) if has_factor else 1.0) * distance
    reports = {
      'cross_entropies': cross_entropy,
      'proximities': distance,
      'squared_cosines': cosine,
    }
    return cross_entropy + pull + hp.nu * cosine, reports

  return loss


def make_proximity(
  task: Task, hp: HParams, start: Params
) -> Callable[[Params], Array]:
  """Return w -> D(w, w^g), where w^g is `start`."""
  reading = READINGS[hp.protocol]
  mask = twin_mask(task, hp.twice if reading.twins_only else 'all')
  start = trees.select(start, mask)
  return lambda params: reading.distance(trees.select(params, mask), start)


# ---- Mixtures ----------------------------------------------------------------


def twin_mask(task: Task, twice: str) -> Mask:
  """Return the mask of the tensors that exist twice.

  Running statistics of BatchNorm exist once: those of the mixtures.
  """

  def is_kernel(name):
    return name.endswith('kernel')  # an LSTM's are w1_kernel, u1_kernel, ..

  if twice == 'all' or all(map(is_kernel, trees.leaf_names(task.is_head))):
    return trees.invert(norm_stats.mask(task.is_head))
  return trees.path_mask(task.is_head, is_kernel)


def lambda_numbers(twins: Mask, mixing: str) -> PyTree:
  """Return which lambda each twin has: number 0, or that of its module.

  A module is a folder of the parameters; modules are in the order of leaves.
  """
  paired = trees.select(twins, twins)
  modules = [name.rpartition('/')[0] for name in trees.leaf_names(paired)]
  if mixing == 'model':
    modules = [''] * len(modules)
  order = list(dict.fromkeys(modules))
  numbers = [order.index(module) for module in modules]
  return jax.tree.unflatten(jax.tree.structure(paired), numbers)


def draw_ratios(rng: Key, number: int) -> Array:
  """Return lambdas ~ U(0, 1): [number]."""
  return jax.random.uniform(rng, (number,))


@jax.jit
def mix(params: Params, local: Params, ratios: PyTree) -> Params:
  """Return (1 - lambda_t) w_t + lambda_t v_t; w_t where v_t is a hole."""
  return jax.tree.map(
    lambda v, w, ratio: w if v is None else (1 - ratio) * w + ratio * v,
    local,
    params,
    ratios,
    is_leaf=lambda leaf: leaf is None,
  )


def between(params: Params, local: Params, ratio: float) -> Params:
  """Return W(lambda) with one lambda for all tensors."""
  return mix(params, local, jax.tree.map(lambda _: ratio, local))


# ---- The two public codes ----------------------------------------------------


class Reading(NamedTuple):
  """What differs between the paper and the codes, with R = all rounds.

    protocol      D(w, w^g)                       cos^2           mixes from
    'paper'       sum_t |w_t - w^g_t|^2           s^2 / (a b)     r >= [L R]
    'first_code'  (1 - lambda) sum_t |w_t - w^g_t|                r >= [L R] - 1
    'final_code'  sum_t |w_t - w^g_t|, twins only (s + 1e-6 P)^2  r >= [L R]
                                                  / (a b)

  where r = 0, 1, .. is the round, s = <w, v>, a = |w|^2, b = |v|^2 and P is the
  number of entries of v. The codes' norms are not squared: their pull has the
  size mu at any distance. The first code's LM is not public: its D has no
  factor here.

  Differs from the codes: the last batch of a client is used though it is
  partial, and all tensors of w are averaged (the final code leaves the shifts
  of BatchNorm at the server as they were).
  """

  distance: Callable[[PyTree, PyTree], Array]
  twins_only: bool = False  # D is without the tensors that exist once
  has_factor: bool = False  # 1 - lambda, of D while mixing
  offset: float = 0.0  # of every product in the cosine
  rounds_early: int = 0


READINGS = {
  'paper': Reading(losses.sum_squares),
  'first_code': Reading(losses.sum_norms, has_factor=True, rounds_early=1),
  'final_code': Reading(losses.sum_norms, twins_only=True, offset=1e-6),
}
