"""Rounds so small that a comment does the arithmetic.

An example is a number x. The model is one of two numbers, w = body + head, with

  loss(w) = mean over the batch of 1/2 (w - x)^2      gradient: w - mean x
"""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import KEY, build, client_of, from_lists

from fedjax_pfl.client import local_training
from fedjax_pfl.core.types import Outputs, Task
from fedjax_pfl.federated.rounds import init_states, make_round

pytestmark = pytest.mark.usefixtures('quick_compiler')


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
    is_head={'body': False, 'head': True},
    num_classes=1,
  )


def training(rate, **settings):
  return local_training.LocalTraining(
    learning_rate=optax.constant_schedule(rate),
    **{'momentum': 0.0, 'batch_size': 50, 'epochs': 1, **settings},
  )


def play(name, task, train, *clients, rounds=1):
  """Return the server's params after rounds of all clients."""
  algorithm = build(name, task, train=train)[0].algorithm
  data = from_lists(*[[[x] for x in client] for client in clients])
  states = init_states(algorithm, data, KEY(0))
  cohort = jnp.arange(len(clients))
  run = make_round(algorithm)
  for _ in range(rounds):
    states = run(*states, cohort, data, KEY(0))[:2]
  return {part: float(w) for part, w in states[0].params.items()}


# ---- FedAvg and FedBABU ------------------------------------------------------


@pytest.mark.parametrize(
  ('aggregation', 'mean'),
  [('uniform', 5.0), ('examples', 3.5)],  # (2 + 8)/2, (3*2 + 1*8)/4
)
def test_weights_of_clients(aggregation, mean):
  """One step of eta = 1/2 on two numbers takes body + head to mean x.

  A client without examples has no weight.
  """
  train = training(0.5, aggregation=aggregation)
  after = play('fedavg', make_task(), train, [1.0, 2.0, 3.0], [8.0], [])
  assert after == {'body': mean / 2, 'head': mean / 2}


def test_momentum_begins_anew_in_each_round():
  """One step of eta = 1/4 a round, beta = 1/2, x = 8, and w = 0:

  both + 1/4 (8 - 0) = 2 and, with w = 4, both + 1/4 (8 - 4): 3. Kept momentum
  would add 1/2 1/4 (8 - 0) = 1. Of other methods: contract_test.py.
  """
  train = training(0.25, momentum=0.5)
  assert play('fedavg', make_task(), train, [8.0], rounds=2)['head'] == 3


def test_frozen_head_moves_neither_by_gradient_nor_by_decay():
  """eta = 1/2, decay = 1/4, x = 1, body = 4, head = 2:

  step 1:  g = 4 + 2 - 1 + 4/4 = 6          body = 4 - 3 = 1
  step 2:  g = 1 + 2 - 1 + 1/4 = 2.25       body = 1 - 1.125 = -0.125

  A head that moved during a round, and went back after it, would move the
  second step.
  """
  task, train = make_task(body=4.0, head=2.0), training(0.5, weight_decay=0.25)
  after = play('fedbabu', task, train._replace(epochs=2), [1.0])
  assert after == {'body': -0.125, 'head': 2.0}


# ---- Per-FedAvg --------------------------------------------------------------


@pytest.mark.parametrize(
  ('second_order', 'w', 'losses', 'loss', 'steps'),
  [(False, 8.0, [128, 32, 0, 8], 20, 4), (True, 4.5, [32, 18], 25, 8)],
)
def test_per_fedavg_looks_ahead(second_order, w, losses, loss, steps):
  """alpha = 1/4, beta = 1/2, mu = 1/2; one batch, x = 16: J = 1/1 + 1 = 2.

  Body and head move alike; s is their sum. First order, m of both steps:

  s = 0    m = -16            s' = 8    m = -16/2 - 8 = -16   8
  s = 16   m = -16/2 + 0 = -8 s' = 20   m = -8/2 + 4 = 0      8

  Second order: s' = s - 2 alpha (s - x), and g = (1 - 2 alpha) (s' - x).

  s = 0   s' = 8     g = -8/2 = -4   m = -4            2      loss 32
  s = 4   s' = 10    g = -6/2 = -3   m = -4/2 - 3 = -5 4.5    loss 18
  """
  hp = {'beta': 0.5, 'second_order': second_order}
  train = training(0.25, momentum=0.5)
  (stage,) = build('per_fedavg', make_task(), train=train, **hp)
  server = stage.algorithm.init_server(KEY(0))
  data = client_of(from_lists([[16.0]]), 0)
  _, params, metrics = jax.jit(stage.algorithm.local_update)(
    server, (), data, KEY(0)
  )
  assert params == {'body': w, 'head': w}
  assert metrics['losses'].tolist() == losses
  assert (metrics['loss'], metrics['num_steps']) == (loss, steps)
