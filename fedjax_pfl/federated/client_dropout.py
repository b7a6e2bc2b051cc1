"""Clients that fail: a drawn client sends nothing, with probability p.

  f_i  ~  Bernoulli(p), with the key fold_in(client key, STREAM)
  rows, metrics, uploads <- those of the clients with f_i = 0

A client that fails has downloaded the model and done its local work, and both
are lost: its state stays as before the round. The server aggregates as if it
had not been drawn. If all clients fail, the server keeps what it has; its clock
goes on, and so does a step on examples of its own.

The client key is fold_in(round key, id): who fails depends on the seed, the
round and the id alone, not on cohort, chunks, devices or a resumed run.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core.algorithm import Algorithm, Stage, Up
from fedjax_pfl.core.types import Array, Key

STREAM = 2**31 - 1  # methods use small numbers
HAS_SENT = 'has_sent'  # a metric [C]; methods have no such name


class Upload(NamedTuple):
  up: Up  # zeros of a client that fails
  has_sent: Array  # []


def with_dropout(stage: Stage, rate: float) -> Stage:
  """Return the stage in which drawn clients fail at this rate.

  The same stage if the rate is 0, and if all clients have to take part: its
  server waits for them.
  """
  if not rate or stage.full_participation:
    return stage
  return stage._replace(algorithm=_failing(stage.algorithm, rate))


def has_sent(client_key: Key, rate: float) -> Array:
  """Return whether the client with this key of a round does not fail: []."""
  key = jax.random.fold_in(client_key, STREAM)
  return ~jax.random.bernoulli(key, rate)


def _failing(algorithm: Algorithm, rate: float) -> Algorithm:
  def local_update(down, client, data, rng):
    sent = has_sent(rng, rate)
    after, up, metrics = algorithm.local_update(down, client, data, rng)
    # A sum with weight 0 is no barrier to a NaN.
    up = _choose(sent, up, jax.tree.map(jnp.zeros_like, up))
    metrics = {**metrics, HAS_SENT: sent}
    return _choose(sent, after, client), Upload(up, sent), metrics

  def aggregate(server, uploads, senders):
    up, sent = uploads
    senders = senders._replace(
      counts=jnp.where(sent, senders.counts, 0),
      has_sent=senders.has_sent & sent,
    )
    after = algorithm.aggregate(server, up, senders)
    alone = server._replace(round=after.round)
    return _choose(jnp.any(sent), after, alone)

  return algorithm._replace(local_update=local_update, aggregate=aggregate)


def _choose(condition: Array, first, second):
  return jax.tree.map(
    lambda one, other: jnp.where(condition, one, other), first, second
  )
