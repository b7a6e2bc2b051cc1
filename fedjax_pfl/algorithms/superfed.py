"""SuPerFed (Hahn, Jeong and Lee 2022): a line of low loss to one's own model.

Of every tensor t that exists twice a client has w_t, which travels, and v_t,
its own. What it trains, and is evaluated by, lies between them:

  W_t(lambda) = (1 - lambda_t) w_t + lambda_t v_t

  federation       w_i      <- SGD_tau(w -> L_i(w) + mu D(w, w^g))
  personalisation  w_i, v_i <- SGD_tau(w, v -> L_i(W(lambda)) + mu D(w, w^g)
                                               + nu cos^2(w, v))
  after both       w^g      <- sum_i a_i w_i / sum_i a_i    a_i = 1 or n_i

from w = w^g, for i in the cohort; v_i begins as another random model, and rests
during federation, which is the first share `phase_start` of all rounds. lambda
is U(0, 1), drawn anew in every step: one number ('model', SuPerFed-MM) or one
for each module of the network ('layer', SuPerFed-LM: the scale and the shift
of a BatchNorm have the same). cos is that of all tensors with twins, taken as
one vector. With R rounds, L = phase_start, and r = 0, 1, ..:

  protocol      D(w, w^g)                       cos^2           mixes from
  'paper'       sum_t |w_t - w^g_t|^2           s^2 / (a b)     r >= [L R]
  'first_code'  (1 - lambda) sum_t |w_t - w^g_t|                r >= [L R] - 1
  'final_code'  sum_t |w_t - w^g_t|, twins only (s + 1e-6 P)^2  r >= [L R]
                                                / (a b)

where s = <w, v>, a = |w|^2, b = |v|^2 and P is the number of entries of v. The
codes' norms are not squared: their pull has the size mu at any distance. The
first code's LM is not public: its D has no factor here. L = 1 never mixes.

`twice`: 'kernels', as in the first version of the paper, whose biases exist
once and belong to w; or 'all', as in the final networks, which have no biases.
`local_init`: v_i is drawn for each client, or is 'shared', as in the first
code. `pairing`: a client is evaluated by its v_i and the server's w^g
('fresh'), or, as the first code evaluates who is absent, the w_i that it last
trained ('stale', which it then keeps).

Views: 'initial' is w^g; 'mix_0.5' is W(0.5), the same lambda for all tensors,
for every number of `grid`. `cross_entropies`, `proximities` (D, without its
factor) and `squared_cosines` are what `losses` are made of.

Differs from the paper: the weights a_i are 1 by default; those of the codes,
with their momentum and their decay of learning rate and weights, are settings.
Differs from the codes: the last batch of a client is kept though it is partial,
and all tensors of w are averaged (the final code leaves the shifts of BatchNorm
at the server as they were).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage, check_protocol
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Key, Mask, Params, PyTree, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  mixing: str = 'model'  # or 'layer'
  mu: float = 0.01
  nu: float = 2.0
  phase_start: float = 0.4  # L: the share of rounds before personalisation
  grid: tuple[float, ...] = tuple(tenth / 10 for tenth in range(11))
  protocol: str = 'paper'  # or 'first_code', 'final_code'
  twice: str = 'kernels'  # or 'all'
  local_init: str = 'client'  # or 'shared'
  pairing: str = 'fresh'  # or 'stale'


FEDAVG_EQUIVALENT = {'mu': 0.0, 'phase_start': 1.0}
PRIVATE_LEAVES = ('local',)
CHOICES = {
  'mixing': ('model', 'layer'),
  'twice': ('kernels', 'all'),
  'local_init': ('client', 'shared'),
  'pairing': ('fresh', 'stale'),
}


class Reading(NamedTuple):
  """What a protocol is made of."""

  distance: Callable[[PyTree, PyTree], Array]
  twins_only: bool = False  # D leaves out what exists once
  fades: bool = False  # D has the factor 1 - lambda
  offset: float = 0.0  # of every product in the cosine
  rounds_early: int = 0


READINGS = {
  'paper': Reading(losses.sum_squares),
  'first_code': Reading(losses.sum_norms, fades=True, rounds_early=1),
  'final_code': Reading(losses.sum_norms, twins_only=True, offset=1e-6),
}
PROTOCOLS = tuple(READINGS)


class Server(NamedTuple):
  round: Array
  params: Params  # w^g
  local_key: Array  # [2] bits of the key of all v_i, if they are shared


class Down(NamedTuple):
  round: Array
  params: Params


class Client(NamedTuple):
  local: Params  # v_i, with holes for what exists once
  federated: Params | tuple = ()  # w_i, kept for stale pairs alone


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the stages of SuPerFed: federation, then personalisation."""
  check_hyperparameters(hp)
  twins, keeps = twin_mask(task, hp.twice), hp.pairing == 'stale'

  def init_server(rng):
    shared = jax.random.key_data(jax.random.fold_in(rng, 1))
    return Server(jnp.zeros((), jnp.int32), task.init(rng), shared)

  def init_client(server, data, rng):
    if hp.local_init == 'shared':
      rng = jax.random.wrap_key_data(server.local_key)
    own = trees.select(task.init(rng), twins)
    return Client(own, server.params if keeps else ())

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean, server.local_key)

  def views(server, client, data, rng):
    params = client.federated if keeps else server.params
    grid = {
      f'mix_{float(x)}': between(params, client.local, x) for x in hp.grid
    }
    return {'initial': server.params, **grid}

  federate, mix_and_train = local_updates(task, hp)
  first = Algorithm(
    init_server=init_server,
    init_client=init_client,
    download=lambda server, client: Down(server.round, server.params),
    local_update=federate,
    aggregate=aggregate,
    personalize=views,
    predict=task.logits,
    global_model=lambda server: server.params,
  )
  second = first._replace(local_update=mix_and_train)
  return phases(hp, first, second)


def phases(
  hp: HParams, first: Algorithm, second: Algorithm
) -> tuple[Stage, ...]:
  """Return the stages that have rounds."""
  before = federation_rounds(hp)
  stages = (
    Stage('federation', before, first),
    Stage('personalisation', hp.train.rounds - before, second),
  )
  return tuple(stage for stage in stages if stage.rounds) or stages[1:]


def local_updates(task: Task, hp: HParams) -> tuple[Callable, Callable]:
  """Return the local training of federation, and that of personalisation."""
  keeps = hp.pairing == 'stale'

  def fit(loss, tree, down, data, rng):
    tx, batching = hp.train.sgd(down.round), hp.train.batching(task)
    return local_training.fit(loss, tree, data, rng, tx=tx, batching=batching)

  def federate(down, client, data, rng):
    loss = federated_objective(task, hp, down.params)
    params, info = fit(loss, down.params, down, data, rng)
    client = Client(client.local, params if keeps else ())
    return client, params, info.metrics()

  def mix_and_train(down, client, data, rng):
    loss = mixed_objective(task, hp, down.params)
    pair = Client(client.local, down.params)
    pair, info = fit(loss, pair, down, data, rng)
    client = pair if keeps else Client(pair.local)
    return client, pair.federated, info.metrics()

  return federate, mix_and_train


def federation_rounds(hp: HParams) -> int:
  """Return how many rounds come before the models are mixed."""
  if hp.phase_start == 1:
    return hp.train.rounds
  early = READINGS[hp.protocol].rounds_early
  return max(int(hp.phase_start * hp.train.rounds) - early, 0)


def twin_mask(task: Task, twice: str) -> Mask:
  """Return the mask of the tensors that exist twice."""
  names = trees.leaf_names(task.is_head)
  kernels = [name.split('/')[-1] == 'kernel' for name in names]
  if twice == 'all' or all(kernels):
    return trees.everything(task.is_head)
  return trees.path_mask(task.is_head, lambda name: kernels[names.index(name)])


def lambda_numbers(twins: Mask, mixing: str) -> PyTree:
  """Return which lambda each twin has: number 0, or that of its module.

  A module is what is in one folder of the parameters, in their order.
  """
  paired = trees.select(twins, twins)
  names = trees.leaf_names(paired)
  modules = [name.rpartition('/')[0] for name in names]
  order = list(dict.fromkeys(modules))
  numbers = [order.index(module) for module in modules]
  if mixing == 'model':
    numbers = [0] * len(names)
  return jax.tree.unflatten(jax.tree.structure(paired), numbers)


def draw_ratios(rng: Key, number: int) -> Array:
  """Return lambdas ~ U(0, 1): [number]."""
  return jax.random.uniform(rng, (number,))


@jax.jit
def mix(params: Params, own: Params, ratios: PyTree) -> Params:
  """Return (1 - lambda_t) w_t + lambda_t v_t; w_t where v_t is a hole."""

  def mix_one(v, w, ratio):
    return w if v is None else (1 - ratio) * w + ratio * v

  return jax.tree.map(
    mix_one, own, params, ratios, is_leaf=lambda leaf: leaf is None
  )


def between(params: Params, own: Params, ratio: float) -> Params:
  """Return W(lambda) with one lambda for all tensors."""
  return mix(params, own, jax.tree.map(lambda _: ratio, own))


def federated_objective(
  task: Task, hp: HParams, anchor: Params
) -> local_training.Loss:
  """Return w -> L(w) + mu D(w, anchor)."""
  distance = proximity(task, hp, anchor)

  def loss(params, batch, rng):
    cross_entropy, away = task.loss(params, batch, rng), distance(params)
    reports = {'cross_entropies': cross_entropy, 'proximities': away}
    return cross_entropy + hp.mu * away, reports

  return loss


def mixed_objective(
  task: Task, hp: HParams, anchor: Params
) -> local_training.Loss:
  """Return (v, w) -> L(W(lambda)) + mu D(w, anchor) + nu cos^2(w, v).

  The forward pass has the key as given: with lambda = 0 it is that of w.
  """
  reading, twins = READINGS[hp.protocol], twin_mask(task, hp.twice)
  distance = proximity(task, hp, anchor)
  numbers = lambda_numbers(twins, hp.mixing)
  most = 1 + max(jax.tree.leaves(numbers))
  fades = reading.fades and hp.mixing == 'model'

  def loss(pair, batch, rng):
    drawn = draw_ratios(jax.random.fold_in(rng, 1), most)  # [1] or [modules]
    ratios = jax.tree.map(lambda number: drawn[number], numbers)
    mixed = mix(pair.federated, pair.local, ratios)
    cross_entropy = task.loss(mixed, batch, rng)
    away = distance(pair.federated)
    cosine = losses.squared_cosine(
      trees.select(pair.federated, twins), pair.local, reading.offset
    )
    pull = hp.mu * ((1 - drawn[0]) if fades else 1.0) * away
    reports = {
      'cross_entropies': cross_entropy,
      'proximities': away,
      'squared_cosines': cosine,
    }
    return cross_entropy + pull + hp.nu * cosine, reports

  return loss


def proximity(
  task: Task, hp: HParams, anchor: Params
) -> Callable[[Params], Array]:
  """Return w -> D(w, anchor)."""
  reading = READINGS[hp.protocol]
  mask = trees.everything(task.is_head)
  if reading.twins_only:
    mask = twin_mask(task, hp.twice)
  anchor = trees.select(anchor, mask)
  return lambda params: reading.distance(trees.select(params, mask), anchor)


def check_start(hp: HParams, start: str) -> None:
  """Refuse a given first model: all clients' own would be copies of it."""
  del hp
  if start:
    raise bad_input(
      'init_from',
      got=start,
      expected="'': the two models of a client have to begin apart; where they "
      'are equal their cosine has no gradient',
      cause='a run of another method to go on with',
    )


def check_hyperparameters(hp: HParams) -> None:
  """Refuse what cannot be, before anything is traced."""
  check_protocol(hp.protocol, PROTOCOLS)
  for name, choices in CHOICES.items():
    if getattr(hp, name) not in choices:
      raise bad_input(
        f'hp.{name}',
        got=getattr(hp, name),
        expected='a form of SuPerFed',
        choices=choices,
        cause='a typing error',
      )
  factor = 'a number, 0 or more', 'a sign: it would reward what is to be small'
  rules = {
    'mu': (hp.mu >= 0, *factor),
    'nu': (hp.nu >= 0, *factor),
    'phase_start': (
      0 <= hp.phase_start <= 1,
      'a share of the rounds, from 0 to 1; 1 never mixes',
      'the round in which mixing starts, or a percentage',
    ),
    'grid': (
      all(0 <= ratio <= 1 for ratio in hp.grid)
      and all(low < high for low, high in pairwise(hp.grid)),
      "rising mixing ratios, from 0 (the server's) to 1 (the client's own)",
      'a ratio twice, percentages, or another order',
    ),
  }
  for name, (holds, expected, cause) in rules.items():
    if not holds:
      got = getattr(hp, name)
      raise bad_input(f'hp.{name}', got=got, expected=expected, cause=cause)
