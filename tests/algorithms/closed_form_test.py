"""Quadratic clients: every result is one of linear algebra, in float64.

  loss_i(w) = 1/(2 n_i) ||A_i w - b_i||^2        H_i = A_i^T A_i / n_i
  one full-batch step of size eta:  w <- M_i w + s_i
                                    M_i = I - eta H_i,  s_i = eta A_i^T b_i/n_i

The rows of the "images" are (a_j, b_j); the body is the first four numbers of
w and the head the last two.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import KEY, client_of, from_lists

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.types import Outputs, Task
from fedjax_pfl.federated.rounds import init_states, make_round, make_rounds

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
ETA = 0.1
SIZES = (9, 6, 14)
DIM, BODY = 6, 4
RNG = np.random.default_rng(0)
# Clients want different things: b_i = A_i w_i + noise.
A = [RNG.standard_normal((n, DIM)) for n in SIZES]
B = [a @ RNG.standard_normal(DIM) + RNG.standard_normal(len(a)) for a in A]
COHORT = np.arange(len(SIZES))


def make_task():
  def init(key):
    body, head = jnp.split(jax.random.normal(key, (DIM,)), [BODY])
    return {'body': body, 'head': head}

  def loss(params, batch, key):
    a, b = batch.x[:, :-1], batch.x[:, -1]
    error = a @ jnp.concatenate([params['body'], params['head']]) - b
    return 0.5 * (batch.mask * error**2).sum() / batch.mask.sum()

  def as_is(x, key):
    return x

  return Task(
    init=init,
    features=lambda params, x, mask: x,
    logits=lambda params, x, mask: x,
    loss=loss,
    train_outputs=lambda params, batch, key: Outputs(batch.x, batch.x),
    augment=as_is,
    normalise=as_is,
    is_head={'body': False, 'head': True},
    num_classes=2,
  )


def make_data():
  return from_lists(*(np.column_stack(pair) for pair in zip(A, B, strict=True)))


def play(name, rounds, epochs=1, aggregation='examples'):
  """Return w before and after full-batch rounds of all clients."""
  train = local_training.LocalTraining(
    rounds=rounds,
    epochs=epochs,
    batch_size=max(SIZES),
    learning_rate=optax.constant_schedule(ETA),
    momentum=0.0,
    aggregation=aggregation,
  )
  module = load(name)
  hp = module.HParams(train, personalization.Finetuning())
  algorithm = module.build(make_task(), hp)[0].algorithm
  data = make_data()
  server, clients = init_states(algorithm, data, KEY(0))
  start = flat(server)
  cohorts = jnp.tile(jnp.asarray(COHORT), (rounds, 1))
  rounds_fn = make_rounds(make_round(algorithm))
  server, _, _ = rounds_fn(server, clients, cohorts, data, KEY(1))
  return start, flat(server)


def flat(server):
  params = server.params
  return np.concatenate([params['body'], params['head']])


def affine(i, steps):
  """Return (M, s) with w after `steps` steps of client i = M w + s."""
  n = SIZES[i]
  one = np.eye(DIM) - ETA * A[i].T @ A[i] / n
  shift = ETA * A[i].T @ B[i] / n
  matrix, offset = np.eye(DIM), np.zeros(DIM)
  for _ in range(steps):
    matrix, offset = one @ matrix, one @ offset + shift
  return matrix, offset


def shares(aggregation):
  weights = np.array(SIZES if aggregation == 'examples' else [1, 1, 1])
  return weights / weights.sum()


def mean_affine(steps, aggregation):
  maps = [affine(i, steps) for i in range(len(SIZES))]
  return [
    sum(a * part for a, part in zip(shares(aggregation), parts, strict=True))
    for parts in zip(*maps, strict=True)
  ]


def close(got, want):
  np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize('steps', [1, 5])
def test_epochs_of_gradient_descent_are_an_affine_map(steps):
  task, data = make_task(), make_data()
  start = task.init(KEY(3))

  @jax.jit
  def fit(one):
    batching = local_training.Batching(max(SIZES), steps, task.augment)
    return local_training.fit(
      task.loss, start, one, KEY(0), tx=optax.sgd(ETA), batching=batching
    )

  for i in range(len(SIZES)):
    end, info = fit(client_of(data, i))
    matrix, offset = affine(i, steps)
    w = np.concatenate([start['body'], start['head']])
    close([*end['body'], *end['head']], matrix @ w + offset)
    close(info.losses[0], 0.5 * np.mean((A[i] @ w - B[i]) ** 2))


def test_one_local_step_is_gradient_descent_on_the_whole():
  """With weights n_i / n the clients' sum is one least-squares problem."""
  start, end = play('fedavg', rounds=3)
  a, b = np.concatenate(A), np.concatenate(B)
  w = start
  for _ in range(3):
    w = w - ETA * a.T @ (a @ w - b) / len(b)
  close(end, w)


def test_many_rounds_of_one_step_reach_the_optimum():
  """The least-squares solution of all rows together."""
  _, end = play('fedavg', rounds=600)
  close(end, np.linalg.lstsq(np.concatenate(A), np.concatenate(B))[0])


@pytest.mark.parametrize('aggregation', ['examples', 'uniform'])
def test_fixed_point_of_several_local_steps(aggregation):
  """w = sum_i a_i (M_i^5 w + s_i): near the optimum, but another point."""
  _, end = play('fedavg', rounds=600, epochs=5, aggregation=aggregation)
  matrix, offset = mean_affine(5, aggregation)
  close(end, np.linalg.solve(np.eye(DIM) - matrix, offset))
  matrix, offset = mean_affine(1, aggregation)
  optimum = np.linalg.solve(np.eye(DIM) - matrix, offset)
  assert np.abs(end - optimum).max() > 1e-3


def test_frozen_head_is_a_smaller_problem():
  """The body solves H_bb b + H_bh h = c_b for the head h of the first day."""
  start, end = play('fedbabu', rounds=600)
  a, b = np.concatenate(A), np.concatenate(B)
  head = start[BODY:]
  assert (end[BODY:] == head).all()
  close(
    end[:BODY],
    np.linalg.lstsq(a[:, :BODY], b - a[:, BODY:] @ head)[0],
  )
