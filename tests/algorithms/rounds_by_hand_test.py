"""Rounds so small that a comment does the arithmetic.

An example is a number x. The model is one of two numbers, w = body + head, with

  loss(w) = mean over the batch of 1/2 (w - x)^2      gradient: w - mean x
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import KEY, build, client_of, from_lists, long

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


def play(name, task, train, *clients, rounds=1, **hp):
  """Return the server's params after each of some rounds of all clients."""
  algorithm = build(name, task, train=train, **hp)[0].algorithm
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


# ---- FedAvg and FedBABU ------------------------------------------------------


@pytest.mark.parametrize(
  ('ratio', 'body', 'head'),
  # With 0, FedBABU: g = 8 - 16 = -8    m = -16/2 - 8 = -16    body = 16
  [(0.25, 15.0, 3.75), long(0.0, 16.0, 0.0)],
)
def test_head_learns_at_its_own_rate(ratio, body, head):
  """eta = 1/2, beta = 1/2, rho = 1/4, x = 16, body = head = 0.

  step 1:  g = 0 - 16 = -16   m = -16             body = 8     head = 2
  step 2:  g = 10 - 16 = -6   m = -16/2 - 6 = -14 body = 15    head = 3.75
  """
  train = training(0.5, momentum=0.5, epochs=2)
  (after,) = play('fedavg', make_task(), train, [16.0], head_lr_ratio=ratio)
  assert after == {'body': body, 'head': head}


@pytest.mark.parametrize(
  ('aggregation', 'clients', 'mean'),
  [
    # Without examples: no weight.
    ('uniform', [[1.0, 2.0, 3.0], [8.0], []], 5.0),  # (2 + 8)/2
    ('examples', [[1.0, 2.0, 3.0], [8.0], []], 3.5),  # (3*2 + 1*8)/4
  ],
)
def test_weights_of_clients(aggregation, clients, mean):
  """One step of eta = 1/2 on two numbers takes body + head to mean x."""
  train = training(0.5, aggregation=aggregation)
  (after,) = play('fedavg', make_task(), train, *clients)
  assert after == {'body': mean / 2, 'head': mean / 2}


def test_frozen_head_moves_neither_by_gradient_nor_by_decay():
  """eta = 1/2, decay = 1/4, x = 1, body = 4, head = 2:

  step 1:  g = 4 + 2 - 1 + 4/4 = 6          body = 4 - 3 = 1
  step 2:  g = 1 + 2 - 1 + 1/4 = 2.25       body = 1 - 1.125 = -0.125

  A head that moved during a round, and went back after it, would move the
  second step.
  """
  task, train = make_task(body=4.0, head=2.0), training(0.5, weight_decay=0.25)
  want = {'body': -0.125, 'head': 2.0}
  assert play('fedbabu', task, train._replace(epochs=2), [1.0]) == [want]


# ---- Ditto -------------------------------------------------------------------


def ditto(rounds=1, momentum=0.0):
  """Return w, and v of both clients, after each of some rounds.

  The second is in the cohort of every other round. eta = 1/2, then 1/4.
  """
  train = training(0.5, epochs=2)._replace(
    learning_rate=lambda clock: jnp.array([0.5, 0.25])[clock],
    momentum=momentum,
  )
  (stage,) = build('ditto', make_task(), train=train, lam=0.5)
  data = from_lists([[8.0]], [[4.0]])
  server, clients = init_states(stage.algorithm, data, KEY(0))
  round_fn, after = make_round(stage.algorithm), []
  personalize = jax.jit(
    jax.vmap(stage.algorithm.personalize, (None, 0, None, None))
  )
  for number in range(rounds):
    cohort = jnp.arange(2 - number % 2)
    server, clients, _ = round_fn(server, clients, cohort, data, KEY(0))
    own = personalize(server, clients, None, None)['personal']['body']
    after.append((float(server.params['body']), own.tolist()))
  return after


def test_ditto_pulls_its_own_model_to_the_global_one():
  """lam = 1/2; eta = 1/2, then 1/4; x = 8 and 4; body = head, both from 0.

  round 1   global 0:    g = -8            4       g = 0              4
            global 1:    g = -4            2       g = 0              2
            personal 0:  g = -8 + 0/2      4       g = 0 + 4/2        3
            personal 1:  g = -4 + 0/2      2       g = 0 + 2/2        1.5
  round 2   global 0:    g = 6 - 8         3.5     g = 7 - 8          3.75
            personal 0:  g = 6 - 8 + 0/2   3.5     g = -1 + 0.5/2     3.6875

  The momentum of the global model is not that of v.
  """
  assert ditto(rounds=2) == [(3.0, [3.0, 1.5]), (3.75, [3.6875, 1.5])]
  ((body, own),) = ditto(momentum=0.5)
  assert body != 3.0 and own == [3.0, 1.5]


# ---- Per-FedAvg --------------------------------------------------------------


def meta_learner(**hp):
  """Return the algorithm, the first server, and a client with x = 16."""
  train = training(0.25, momentum=0.5)
  (stage,) = build('per_fedavg', make_task(), train=train, **hp)
  data = client_of(from_lists([[16.0]]), 0)
  return stage.algorithm, stage.algorithm.init_server(KEY(0)), data


# alpha = 1/4, beta = 1/2, mu = 1/2; one batch, x = 16: J = 1/1 + 1 = 2.
META_STEPS = {
  # inner:  g = 0 - 16 = -16    m = -16             4, from 0     loss 128
  # outer:  g = 8 - 16 = -8     m = -16/2 - 8 = -16 8, from 0     loss 32
  # inner:  g = 16 - 16 = 0     m = -16/2 = -8      10, from 8    loss 0
  # outer:  g = 20 - 16 = 4     m = -8/2 + 4 = 0    8, from 8     loss 8
  False: (8.0, [128.0, 32.0, 0.0, 8.0], (32 + 8) / 2, 4),
  # Body and head move alike, their sum s to s' = s - 2 alpha (s - x), and
  # g = (1 - 2 alpha) (s' - x).
  # s = 0   s' = 8     g = -8/2 = -4   m = -4            2      loss 32
  # s = 4   s' = 10    g = -6/2 = -3   m = -4/2 - 3 = -5 4.5    loss 18
  True: (4.5, [32.0, 18.0], (32 + 18) / 2, 2 * 4),
}


@pytest.mark.parametrize('second_order', META_STEPS)
def test_inner_and_outer_steps(second_order):
  """The first order shares one momentum, the second goes through the inner."""
  w, losses, loss, num_steps = META_STEPS[second_order]
  hp = {'beta': 0.5, 'second_order': second_order}
  algorithm, server, data = meta_learner(**hp)
  local_update = jax.jit(algorithm.local_update)
  _, params, metrics = local_update(server, (), data, KEY(0))
  assert params == {'body': w, 'head': w}
  assert metrics['losses'].tolist() == losses
  assert (metrics['loss'], metrics['num_steps']) == (loss, num_steps)


@pytest.mark.parametrize(
  'protocol, adapted_twice', [('paper', 16.0), ('released', 11.2)]
)
def test_adaptation_is_one_step_or_two(protocol, adapted_twice):
  """eta = 1/4, mu = 1/2, x = 16, s = 0; the second rate is 1/4 or 0.1.

  one:  g = -16                     s = 2 * 4 = 8
  two:  g = -8    m = -8 - 8 = -16  s = 8 + 2 * 4 = 16, or 8 + 3.2 = 11.2
  """
  algorithm, server, data = meta_learner(protocol=protocol)
  views = jax.jit(algorithm.personalize)(server, (), data, KEY(0))
  sums = {name: view['body'] + view['head'] for name, view in views.items()}
  assert sums['initial'] == 0 and sums['adapted'] == 8.0
  np.testing.assert_allclose(sums['adapted_twice'], adapted_twice, rtol=1e-6)
