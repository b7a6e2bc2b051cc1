"""A model of one number w (or two: body and head); an example is a number x.

loss(w) = mean over the batch of 1/2 (w - x)^2      gradient: w - mean x
"""

import jax.numpy as jnp
import optax
from helpers import KEY, from_lists

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import local_training
from fedjax_pfl.core.types import Outputs, Task
from fedjax_pfl.federated.rounds import init_states, make_round

IS_HEAD = {'body': False, 'head': True}


def make_task(body=0.0, head=0.0):
  """Return the task whose w is body + head."""

  def loss(params, batch, key):
    error = params['body'] + params['head'] - batch.x[:, 0]
    return 0.5 * (batch.mask * error**2).sum() / batch.mask.sum()

  def as_is(x, key):
    return x

  return Task(
    init=lambda key: {'body': jnp.array(body), 'head': jnp.array(head)},
    features=lambda params, x, mask: x,
    logits=lambda params, x, mask: x,
    loss=loss,
    train_outputs=lambda params, batch, key: Outputs(batch.x, batch.x),
    augment=as_is,
    normalise=as_is,
    is_head=IS_HEAD,
    num_classes=1,
  )


def training(rate, **settings):
  return local_training.LocalTraining(
    learning_rate=optax.constant_schedule(rate),
    **{'momentum': 0.0, 'batch_size': 50, 'epochs': 1, **settings},
  )


def play(name, task, train, *clients, rounds=1, **hp):
  """Return the server's params after each of some rounds of all clients."""
  module = load(name)
  algorithm = module.build(task, module.HParams(train, **hp))[0].algorithm
  data = from_lists(*[[[x] for x in client] for client in clients])
  server, states = init_states(algorithm, data, KEY(0))
  round_fn = make_round(algorithm)
  after = []
  for _ in range(rounds):
    server, states, _ = round_fn(
      server, states, jnp.arange(len(clients)), data, KEY(0)
    )
    after.append({part: float(w) for part, w in server.params.items()})
  return after
