"""Clients of a cohort that send nothing: drop out, diverge, late, not drawn.

  f_i     ~   Bernoulli(p), with the key fold_in(client key, STREAM)
  sent_i  =   not f_i
  sent_i  &=  client i joins                      of a Poisson cohort
  sent_i  &=  client i had time for a step  if there is a deadline (sim_time.py)
  sent_i  &=  loss, state and upload of client i are finite   if these exclude
  rows, uploads <- those of the clients that have sent

A client that has not sent has downloaded the model and done its local work, and
both are lost: its state stays as before the round, and its row of the upload is
zeros. The server aggregates as if it had not been drawn. If nobody has sent,
the server keeps what it has; its clock goes on, and so does a step on examples
of its own (`post_aggregate`).

The client key is fold_in(round key, id): who drops out depends on the seed, the
round and the id alone, not on cohort, chunks, devices or a resumed run.

Who does not join a Poisson cohort (cohort.py) is there for its fixed shape
alone, takes no step, and downloads nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  FINITE,
  HAS_SENT,
  JOINED,
  Algorithm,
  Senders,
  Stage,
  Up,
)
from fedjax_pfl.core.types import Array
from fedjax_pfl.federated.sampling import joins

STREAM = 2**31 - 1  # methods use small numbers


class Upload(NamedTuple):
  up: Up  # zeros of a client that has not sent
  has_sent: Array  # []


def with_failures(
  stage: Stage,
  dropout_rate: float = 0.0,
  excludes_diverged: bool = False,
  joining_rate: float = 1.0,
  is_private: bool = False,
  has_deadline: bool = False,
) -> Stage:
  """Return the stage with the metric FINITE, in which drawn clients may fail.

  They drop out at this rate, where they diverge if it excludes them, and where
  `ClientData.work` leaves them no step. In a Poisson cohort they join with the
  rate below 1. The server keeps what it has where nobody has sent. Nobody fails
  where all clients have to take part: the server waits for them.

  A private server adds noise even where nobody has sent, and leaves out who
  diverges in every stage: a run that stopped there would tell of one client.
  """
  if stage.full_participation:
    dropout_rate, joining_rate, has_deadline = 0.0, 1.0, False
    excludes_diverged = False
  excludes_diverged |= is_private
  how = dropout_rate, excludes_diverged, joining_rate, is_private
  if dropout_rate > 0 or excludes_diverged or joining_rate < 1 or has_deadline:
    return stage._replace(algorithm=_failing(stage.algorithm, *how))
  return stage._replace(algorithm=_watched(stage.algorithm))


def _watched(algorithm: Algorithm) -> Algorithm:
  def local_update(down, client, data, rng):
    after, up, metrics = algorithm.local_update(down, client, data, rng)
    finite = trees.all_finite((metrics['loss'], after, up))
    return after, up, {**metrics, FINITE: finite}

  return algorithm._replace(local_update=local_update)


def _failing(
  algorithm: Algorithm,
  rate: float,
  excludes_diverged: bool,
  joining_rate: float,
  is_private: bool,
) -> Algorithm:
  def local_update(down, client, data, rng):
    sent, joined = jnp.array(True), {}
    if rate:
      sent = ~jax.random.bernoulli(jax.random.fold_in(rng, STREAM), rate)
    if joining_rate < 1:
      joined = {JOINED: joins(rng, joining_rate)}
      sent &= joined[JOINED]
      data = data._replace(count=jnp.where(joined[JOINED], data.count, 0))
    after, up, metrics = algorithm.local_update(down, client, data, rng)
    if data.work is not None:  # it is 1 of a client without examples
      sent &= (data.work >= 1) | (metrics['num_steps'] > 0)
    # What a client that drops out would have sent harms nobody.
    finite = trees.all_finite(metrics['loss']) & (
      ~sent | trees.all_finite((after, up))
    )
    if excludes_diverged:
      sent &= finite
    # A sum with weight 0 is no barrier to a NaN.
    up = trees.choose(sent, up, jax.tree.map(jnp.zeros_like, up))
    metrics = {**metrics, **joined, FINITE: finite, HAS_SENT: sent}
    return trees.choose(sent, after, client), Upload(up, sent), metrics

  def aggregate(server, uploads, senders):
    who = _who_sent(senders, uploads.has_sent)
    after = algorithm.aggregate(server, uploads.up, who)
    if is_private:
      return after
    alone = server._replace(round=after.round)
    return trees.choose(jnp.any(uploads.has_sent), after, alone)

  def respond(server, clients, uploads, senders):
    who = _who_sent(senders, uploads.has_sent)
    after = algorithm.respond(server, clients, uploads.up, who)
    return jax.vmap(trees.choose)(uploads.has_sent, after, clients)

  return algorithm._replace(
    local_update=local_update,
    aggregate=aggregate,
    respond=algorithm.respond and respond,
  )


def _who_sent(senders: Senders, sent: Array) -> Senders:
  return senders._replace(
    counts=jnp.where(sent, senders.counts, 0),
    has_sent=senders.has_sent & sent,
  )
