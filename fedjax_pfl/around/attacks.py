"""Attacks: what some clients send, or learn from, in the place of their own.

On uploads; m, s are mean and deviation (n - 1) of honest changes:
  sign_flip  -m                                         (Allen-Zhu et al. 2020)
  ipm        -tau m, tau = 2: inner product manipulation     (Xie et al. 2019)
  alie       m + tau s, tau = 1.5: a little is enough     (Baruch et al. 2019)
  best_ipm   the same, with the tau that moves what the server makes of the
  best_alie  changes farthest from m, by a search       (Shejwalkar et al. 2021)
  mimic      the change of the honest client with the least id
                                                       (Karimireddy et al. 2022)
  gaussian   tau N(0, 1) in each number, tau = 1
  infinite   infinity;   absent: NaN

As in these papers attackers know the changes of all honest clients of their
round, and send the same; for the best tau also the server's rule and f. For
mimic they know one change, for the last three none.

On data, where attackers know nothing of others, and send what they have learnt:
  label_flip   y <- Y - 1 - y, of all their examples     (Tolpegin et al. 2020)
  backdoor     of a share of their examples the upper left corner is white and y
               is the target                                   (Gu et al. 2017)
  distributed_backdoor  one column of the corner each; in tests it is whole
                                                               (Xie et al. 2020)
  bad_pfl      a backdoor that is made for each image: bad_pfl.py
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedjax_pfl.around import bad_pfl
from fedjax_pfl.around.robust import shares
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.records import field, or_code, record
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree, Task
from fedjax_pfl.core.user_code import is_code, value_of

NONE, BAD_PFL, WHITE = 'none', 'bad_pfl', 255
BACKDOORS = ('backdoor', 'distributed_backdoor', BAD_PFL)
OF_DATA = ('label_flip', *BACKDOORS)
TAU = {'sign_flip': 1.0, 'ipm': 2.0, 'alie': 1.5, 'gaussian': 1.0}
OF_UPLOADS = (*TAU, 'best_ipm', 'best_alie', 'mimic', 'infinite', 'absent')
EVALUATIONS, FIRST_STEP, RATIO = 20, 10.0, 0.8  # of the search for tau
STREAM = 2**31 - 6  # of the server's first key
OF_BACKDOORS = {'needs': ('attack', 'backdoor')}


@record('attack_')
class Attack:
  """What some of the clients do in the place of what the method asks.

  Args:
    name: the attack, on uploads or, label_flip and backdoors, on training data
    attackers: share of the clients, drawn by the seed, who attack
    attacker_ids: who attacks, in the place of clients that are drawn
    tau: strength of ipm, alie and gaussian; 0: as in their papers
    target: the class for which a backdoor opens
    share: of an attacker's examples that have a backdoor's trigger
    trigger: side of a backdoor's white square, in pixels
  """

  name: str = field(
    NONE, or_code(rules.one_of((NONE, *OF_UPLOADS, *OF_DATA))), name='attack'
  )
  attackers: float = field(
    0.0,
    rules.interval('[0, 0.5)', 'a number of clients', 'a share'),
    needs=('attack', 'sign_flip'),
    name='attackers',
  )
  attacker_ids: tuple[int, ...] = field(
    (),
    rules.tuple_of(rules.is_int, 'ids of clients', 'a single id: write (0,)'),
    needs=('attack', 'sign_flip'),
    name='attacker_ids',
  )
  tau: float = field(0.0, rules.at_least(0), needs=('attack', 'alie'))
  target: int = field(0, rules.count('a class', smallest=0), **OF_BACKDOORS)
  share: float = field(
    0.5, rules.interval('(0, 1]', 'a percentage', 'a share'), **OF_BACKDOORS
  )
  trigger: int = field(2, rules.count('pixels'), **OF_BACKDOORS)
  num_classes: int = 0  # Y
  task: Task | None = None  # of bad_pfl

  def __bool__(self) -> bool:
    return self.name != NONE

  @property
  def is_of_data(self) -> bool:
    return self.name in OF_DATA

  @property
  def is_of_uploads(self) -> bool:
    return bool(self) and not self.is_of_data

  def number(self, clients: int) -> int:
    return len(self.attacker_ids) or round(self.attackers * clients)

  def drawn(self, rng: Key, clients: int, spared: Array) -> Array:
    """Return who attacks: [K] bool; of those drawn none who is spared."""
    if self and self.attacker_ids:
      return jnp.zeros(clients, bool).at[jnp.array(self.attacker_ids)].set(True)
    chance = jax.random.uniform(jax.random.fold_in(rng, STREAM), (clients,))
    order = jnp.argsort(jnp.where(spared, 2, chance))
    number = self.number(clients) if self else 0
    return jnp.zeros(clients, bool).at[order[:number]].set(True)


# ---- on uploads --------------------------------------------------------------


def best_tau(damage: Callable, evaluations: int = EVALUATIONS) -> Array:
  """Return the tau from 0 on with the largest damage(tau) that a search finds.

  Steps double as long as each does more damage; then each is 0.8 of the last.
  """

  def propose(_, state):
    tau, most, step, grows = state
    value = damage(tau + step)
    is_more = value > most
    tau, most = jnp.where(is_more, tau + step, tau), jnp.maximum(value, most)
    grows &= is_more
    return tau, most, step * jnp.where(grows, 2, RATIO), grows

  none = jnp.zeros(())
  state = none, damage(none), none + FIRST_STEP, jnp.array(True)
  return lax.fori_loop(1, evaluations, propose, state)[0]


def forged(
  attack: Attack,
  changes: PyTree,
  is_bad: Array,
  is_honest: Array,
  ids: Array,
  rng: Key,
  aggregated: Callable[[PyTree], PyTree],
) -> PyTree:
  """Return the changes [C, ...] with lies in the rows of attackers.

  aggregated: changes [C, ...] -> what the server makes of them.
  """
  name, tau = attack.name, attack.tau or TAU.get(attack.name)
  with_rows = lambda rows: jax.vmap(trees.choose)(is_bad, rows, changes)
  if is_code(name):
    return with_rows(value_of('attack', name)(changes, is_bad, rng))
  if name in ('infinite', 'absent'):
    value = jnp.inf if name == 'infinite' else jnp.nan
    return with_rows(jax.tree.map(lambda x: jnp.full_like(x, value), changes))
  if name == 'gaussian':
    noise = optax.tree.random_like(rng, changes, jax.random.normal)
    return with_rows(optax.tree.scale(tau, noise))
  with_all = lambda lie: with_rows(trees.repeated(lie, len(ids)))
  if name == 'mimic':
    first = jnp.argmin(jnp.where(is_honest, ids, jnp.iinfo(ids.dtype).max))
    return with_all(trees.gather(changes, first))
  start = mean = trees.weighted_sum(changes, shares(is_honest))
  if name.endswith('alie'):
    square = lambda leaf, centre: jnp.square(leaf - centre)
    scale = is_honest / jnp.maximum(jnp.sum(is_honest) - 1, 1)
    squares = jax.tree.map(square, changes, mean)
    way = jax.tree.map(jnp.sqrt, trees.weighted_sum(squares, scale))
  else:
    start, way = trees.zeros(mean), jax.tree.map(jnp.negative, mean)
  along = lambda tau: with_all(optax.tree.add_scale(start, tau, way))
  if name.startswith('best_'):
    away = lambda tau: optax.tree.sub(aggregated(along(tau)), mean)
    tau = best_tau(lambda tau: optax.tree.norm(away(tau)))
  return along(tau)


# ---- on data -----------------------------------------------------------------


def poisoned(
  data: ClientData, is_bad: Array, attack: Attack, *of_server: Any
) -> ClientData:
  """Return the examples of all clients, those of attackers [K] poisoned.

  of_server: method and server, for bad_pfl.
  """
  is_label = attack.name == 'label_flip'
  # Examples of a client are in random order.
  most = data.count if is_label else jnp.ceil(attack.share * data.count)
  is_hit = is_bad[:, None] & (jnp.arange(data.index.shape[1]) < most[:, None])
  number = jnp.where(is_hit, jnp.cumsum(is_bad)[:, None], 0)  # 1, 2, .. or 0
  number = jnp.zeros(len(data.y), int).at[data.index].max(number)  # [P]
  x, y = jnp.asarray(data.x[:]), jnp.asarray(data.y)
  target = attack.target
  if is_label:
    target = jnp.where(y >= 0, attack.num_classes - 1 - y, y)
  elif attack.name == BAD_PFL:
    check_backdoor(x, attack)
    ids = jnp.nonzero(is_bad, size=attack.number(len(is_bad)))[0]
    rows = data.index[ids]
    made = bad_pfl.trigger(*of_server, data, ids, attack)
    place = jnp.where(is_hit[ids], rows, len(x)).ravel()
    made = made(x[rows.ravel()], y[rows.ravel()])
    x = x.at[place].set(made, mode='drop')
  else:
    check_backdoor(x, attack)
    side, of_row = jnp.arange(attack.trigger), number[:, None]
    column = of_row > 0  # [P, side]
    if attack.name == 'distributed_backdoor':
      column &= side == of_row % attack.trigger
    corner = x[:, : attack.trigger, : attack.trigger]
    white = jnp.asarray(WHITE, x.dtype)
    corner = jnp.where(column[:, None, :, None], white, corner)
    x = x.at[:, : attack.trigger, : attack.trigger].set(corner)
  is_row = (number > 0).reshape(-1, *[1] * (y.ndim - 1))
  return data._replace(x=x, y=jnp.where(is_row, target, y))


def check_backdoor(x: Array, attack: Attack) -> None:
  """Refuse a trigger that is no part of images, a target that is no class."""
  images = 'another attack: a backdoor is a part of an image'
  is_image = x.ndim == 4 and x.dtype == jnp.uint8
  rules.Rule(lambda name: is_image, images).check('attack', attack.name)
  side, last = min(x.shape[1:3]), attack.num_classes - 1
  fits = rules.Rule(
    lambda own: own <= side, f'at most {side}, a side of images'
  )
  fits.check('attack_trigger', attack.trigger)
  classes = rules.Rule(lambda own: own <= last, f'a class, 0 to {last}')
  classes.check('attack_target', attack.target)


def opened(test: ClientData, attack: Attack, *of_run: Any) -> ClientData:
  """Return tests with the trigger, all of the target: right is a success.

  Left out are those that are of the target anyway. of_run: method, server,
  training data and ids of attackers, for bad_pfl.
  """
  x, y, index = map(np.array, (test.x[:], test.y, test.index))
  if attack.name == BAD_PFL:
    x = np.array(bad_pfl.trigger(*of_run, attack)(*map(jnp.asarray, (x, y))))
  else:
    x[:, : attack.trigger, : attack.trigger] = WHITE
  is_used = np.arange(index.shape[1]) < np.asarray(test.count)[:, None]
  is_used &= y[index] != attack.target
  order = np.argsort(~is_used, 1, kind='stable')
  count = is_used.sum(1, dtype=np.int32)
  index = np.take_along_axis(index, order, 1)
  return ClientData(x, np.full_like(y, attack.target), index, count)
