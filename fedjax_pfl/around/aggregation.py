"""What the server makes of the changes of a round, of which some may be lies.

  d_i <- the change of upload i (exchange.py)
  d_i <- a lie                      of attackers, if there are any (attacks.py)
  d   <- rule(d_1, ..., d_n)                    of those who sent (robust.py)
  the method aggregates as if one client had sent d

Every client counts once, whatever its number of examples: a method's own
weights meet one upload. All uploads of a round are there at once, [C, ...], as
for the mean, however small chunks are; a rule of each number alone has them in
blocks once more, and after `mixing` or `bucketing` a third time. On a mesh each
device has them all.

A client is left out of a round where its part of d is less than half of 1 / n.
"""

from functools import partial
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around.attacks import BAD_PFL, Attack, forged, poisoned
from fedjax_pfl.around.exchange import AS_IT_IS, as_one, exchanging, refusal
from fedjax_pfl.around.fair import STRENGTH
from fedjax_pfl.around.lifted import AS_IT_IS as UNCHANGED
from fedjax_pfl.around.lifted import in_field, lifted
from fedjax_pfl.around.robust import BEFORE, RULES, Known, robust_mean
from fedjax_pfl.core.algorithm import Senders, Stage
from fedjax_pfl.core.records import field, or_code, record
from fedjax_pfl.core.rules import at_least, interval, one_of, tuple_of
from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.core.user_code import is_code, value_of

FIELD = 'lies'  # of the server, with this state
MEANS = ('uniform', 'examples')
TRUSTED = 0  # the id of the client whom monna trusts
# They need f; the others bear as many as any rule can.
OF_F = {'trimmed_mean', 'mean_around_median', 'krum', 'multi_krum', 'mda'}
OF_F |= {'monna', 'caf', 'mixing', 'adaptive_clipping'}


@record('aggregation_')
class Aggregation:
  """What the server makes of the uploads of a round.

  Args:
    rule: the mean with weights uniform, 1 / m, or examples, n_i / n (a client
      without examples has weight 0); a robust rule (median to caf) or a fair
      one (qffl to fedmgda), for which every client counts once; or your own
    before: what is done to changes before a robust rule, in this order
    bears: share of the clients of a round that may lie: f is that times C,
      rounded up; 0: attackers
    radius: of centred_clipping and clipping; 0: the median of the norms
    fairness: q of qffl, gamma of afl, t of term, epsilon of fedmgda; 0: 1 or,
      of afl and fedmgda, 0.1
  """

  rule: str = field(
    'uniform', or_code(one_of((*MEANS, *RULES, *STRENGTH))), name='aggregation'
  )
  before: tuple[str, ...] = field(
    (),
    tuple_of((*BEFORE,).__contains__, f'some of {", ".join(BEFORE)}'),
    needs=('aggregation', 'median'),
  )
  bears: float = field(
    0.0,
    interval('[0, 0.5)', 'a number of clients', 'a share'),
    needs=('aggregation', 'median'),
  )
  radius: float = field(0.0, at_least(0), needs=('aggregation', 'median'))
  fairness: float = field(0.0, at_least(0), needs=('aggregation', 'qffl'))
  attack: Attack = Attack()
  num_clients: int = 0  # K

  def __bool__(self) -> bool:
    return self.is_robust or bool(self.attack)

  @property
  def is_robust(self) -> bool:
    return self.rule not in (*MEANS, *STRENGTH)

  @property
  def weights(self) -> str:
    """Return the weights of a mean."""
    return self.rule if self.rule in MEANS else 'uniform'

  def liars(self, size: int) -> int:
    """Return f of a round of so many clients."""
    share = self.attack.number(self.num_clients) / max(self.num_clients, 1)
    return ceil((self.bears or share) * size - 1e-9)

  def aggregate(
    self, changes: PyTree, senders: Senders, there: Array
  ) -> tuple[PyTree, Array | None]:
    """Return d, and the part of each client [C], which no code tells."""
    liars = self.liars(len(there))
    if is_code(self.rule):
      code = value_of('aggregation', self.rule)
      return code(changes, there, liars), None
    known = Known(None, there, liars, senders.ids == TRUSTED, self.radius)
    return robust_mean(self.rule, changes, known, self.before, senders.rng)


class State(NamedTuple):
  """What the server keeps of who lies, and of whom it left out."""

  is_bad: Array  # [K] bool; no method and no rule sees it
  sent: Array  # [K] rounds in which each has sent
  left_out: Array  # [K] those in which it was left out


def aggregated(stage: Stage, aggregation: Aggregation) -> Stage:
  """Return the stage with attackers, and a server that aggregates by a rule.

  Refused is a method that sends nothing or, but for attacks on data, whose
  server answers single uploads; for a rule also one that does more with them
  than take a mean.
  """
  attack, is_robust = aggregation.attack, aggregation.is_robust
  given = (
    ('aggregation', aggregation.rule) if is_robust else ('attack', attack.name)
  )
  refused = partial(refusal, stage, *given)

  def begin(server, rng, previous):
    if previous is not None:
      return previous
    everyone = jnp.arange(aggregation.num_clients)
    spared = (everyone == TRUSTED) & (aggregation.rule == 'monna')
    none = jnp.zeros_like(everyone)
    return State(attack.drawn(rng, len(everyone), spared), none, none)

  def receive(changes, senders, state):
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(changes)]
    if not dtypes:
      raise refused('its clients send nothing')
    if not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes):
      raise refused('its clients send whole numbers')
    ids, there = senders.ids, senders.has_sent & (senders.counts > 0)
    if attack.is_of_uploads:
      is_bad = there & state.is_bad[ids]
      mean_of = lambda lies: aggregation.aggregate(lies, senders, there)[0]
      honest = there & ~is_bad
      changes = forged(
        attack, changes, is_bad, honest, ids, senders.rng, mean_of
      )
    if not is_robust:
      return changes, senders, state
    change, parts = aggregation.aggregate(changes, senders, there)
    if parts is not None:
      is_out = there & (parts * jnp.sum(there) < 0.5)
      left_out = state.left_out.at[ids].add(is_out)
      state = State(state.is_bad, state.sent.at[ids].add(there), left_out)
    return *as_one(change, senders, refused), state

  def receive_any(server, up, senders, state):
    if not jax.tree.leaves(up):
      raise refused('its clients send nothing')
    return up, senders, state

  if not (attack.is_of_uploads or is_robust):
    up = UNCHANGED[1]._replace(receive=receive_any)
    stage = lifted(stage, server=in_field(FIELD, begin), up=up)
  elif stage.algorithm.respond is not None:
    raise refused('its server answers each client from single uploads')
  else:
    stage = exchanging(stage, FIELD, AS_IT_IS, receive, begin)
  if not attack.is_of_data:
    return stage
  method = stage.algorithm

  def prepare_data(server, data, before=stage.prepare_data):
    if attack.name == BAD_PFL and method.global_model is None:
      raise refused('its server has no whole model')
    is_bad = getattr(server, FIELD).is_bad
    return poisoned(before(server, data), is_bad, attack, method, server)

  return stage._replace(prepare_data=prepare_data)


# ---- what is told of it ------------------------------------------------------


def attackers(server: Any) -> list[int]:
  """Return the ids of those who attack."""
  state = getattr(server, FIELD, None)
  return [] if state is None else np.flatnonzero(state.is_bad).tolist()


def honest(server: Any, counts: Array) -> np.ndarray:
  """Return the examples of clients [K]; 0 of attackers, who are in no mean."""
  counts = np.array(counts)
  counts[attackers(server)] = 0
  return counts


def left_out(server: Any) -> dict[str, float]:
  """Return whom a robust server left out, of all rounds so far; {} without.

  Precision is the part of attackers among the clients left out, recall that of
  clients left out among attackers.
  """
  state = getattr(server, FIELD, None)
  if state is None or not np.any(state.sent):
    return {}
  is_bad, sent, out = map(np.asarray, state)
  shares = {'share': (out, sent)}
  if is_bad.any():
    bad = out[is_bad]
    shares |= {'precision': (bad, out), 'recall': (bad, sent[is_bad])}
  return {
    f'left_out/{name}': float(part.sum() / whole.sum())
    if any(whole)
    else np.nan
    for name, (part, whole) in shares.items()
  }
