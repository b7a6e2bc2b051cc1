"""Clients of a cohort that send nothing: drop out, diverge, late, not drawn.

  f_i     ~   Bernoulli(p), with the key fold_in(client key, STREAM)
  sent_i  =   not f_i
  sent_i  &=  client i joins                      of a Poisson cohort
  sent_i  &=  client i had time for a step  if there is a deadline (sim_time.py)
  sent_i  &=  loss, state and upload of client i are finite   if these exclude
  rows, uploads <- those of the clients that have sent

The local work of a client that has not sent is lost: its state stays as before
the round, and its row of the upload is zeros. The server aggregates as if it
had not been drawn. If nobody has sent, the server keeps what it has; its clock
goes on, and so does a step on examples of its own (server_training.py).

Who does not join a Poisson cohort (cohort.py) is there for its fixed shape
alone, takes no step, and downloads nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  FINITE,
  HAS_SENT,
  JOINED,
  Senders,
  Stage,
  Up,
)
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.rules import interval, one_of
from fedjax_pfl.core.types import Array
from fedjax_pfl.federated.communication import Counted, num_bytes
from fedjax_pfl.federated.sampling import joins

STREAM = 2**31 - 1  # methods use small numbers


class Upload(NamedTuple):
  up: Up  # zeros of a client that has not sent
  has_sent: Array  # []


@record()
class Failures:
  """Why clients that are drawn send nothing.

  A private server adds noise even where nobody has sent, and leaves out who
  diverges in every stage: a run that stopped there would tell of one client.

  Args:
    dropout_rate: probability with which a client of the cohort fails and sends
      nothing
    on_divergence: what happens where a number is not finite: stop, or exclude
      the client
  """

  dropout_rate: float = field(
    0.0, interval('[0, 1)', 'a percentage; at 1 none sends', 'a probability')
  )
  on_divergence: str = field('stop', one_of(('stop', 'exclude')))
  joining_rate: float = 1.0  # below 1 in a Poisson cohort
  is_private: bool = False
  has_deadline: bool = False  # `ClientData.work` may leave no step

  def of(self, stage: Stage) -> 'Failures':
    """Return those of a stage: the server waits where all have to take part."""
    if not stage.full_participation:
      return self
    return Failures(is_private=self.is_private)

  @property
  def may_happen(self) -> bool:
    drops = self.dropout_rate > 0 or self.joining_rate < 1
    return self.excludes or self.has_deadline or drops

  @property
  def excludes(self) -> bool:
    return self.on_divergence == 'exclude' or self.is_private


def unmoved_by_nobody(stage: Stage, failures: Failures) -> Stage:
  """Return the stage whose server keeps what it has where nobody has sent."""
  failures, method = failures.of(stage), stage.algorithm
  if failures.is_private or not failures.may_happen:
    return stage

  def aggregate(server, uploads, senders):
    after = method.aggregate(server, uploads, senders)
    alone = server._replace(round=after.round)
    return trees.choose(jnp.any(senders.has_sent), after, alone)

  return replaced(stage, aggregate=aggregate)


def failing(stage: Stage, failures: Failures) -> Stage:
  """Return the stage in which clients may fail; metrics say which did."""
  failures, method, rate = (
    failures.of(stage),
    stage.algorithm,
    failures.dropout_rate,
  )
  if not failures.may_happen:
    return stage

  def local_update(down, client, data, rng):
    sent, joined = jnp.array(True), {}
    if rate:
      sent = ~jax.random.bernoulli(jax.random.fold_in(rng, STREAM), rate)
    if failures.joining_rate < 1:
      joined = {JOINED: joins(rng, failures.joining_rate)}
      sent &= joined[JOINED]
      data = data._replace(count=jnp.where(joined[JOINED], data.count, 0))
    after, up, metrics = method.local_update(down, client, data, rng)
    if data.work is not None:  # it is 1 of a client without examples
      sent &= (data.work >= 1) | (metrics['num_steps'] > 0)
    # What a client that drops out would have sent harms nobody.
    has_loss, rest = map(trees.all_finite, (metrics['loss'], (after, up)))
    finite = has_loss & (~sent | rest)
    if failures.excludes:
      sent &= finite
    # A sum with weight 0 is no barrier to a NaN.
    size = num_bytes(up)
    up = trees.choose(sent, up, jax.tree.map(jnp.zeros_like, up))
    metrics = {**metrics, **joined, FINITE: finite, HAS_SENT: sent}
    message = Counted(Upload(up, sent), size)
    return trees.choose(sent, after, client), message, metrics

  def aggregate(server, message, senders):
    up, has_sent = message.content
    return method.aggregate(server, up, _who_sent(senders, has_sent))

  def respond(server, clients, message, senders):
    up, has_sent = message.content
    who = _who_sent(senders, has_sent)
    after = method.respond(server, clients, up, who)
    return jax.vmap(trees.choose)(has_sent, after, clients)

  return replaced(
    stage,
    local_update=local_update,
    aggregate=aggregate,
    respond=method.respond and respond,
  )


def _who_sent(senders: Senders, sent: Array) -> Senders:
  return senders._replace(
    counts=jnp.where(sent, senders.counts, 0), has_sent=senders.has_sent & sent
  )
