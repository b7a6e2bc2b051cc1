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
import one_number
import optax
import pytest
from helpers import KEY, build, from_lists

from fedjax_pfl.client import local_training
from fedjax_pfl.federated.rounds import init_states, make_round, make_rounds

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
ETA = 0.1
SIZES = (9, 6, 14)
DIM, BODY = 6, 4
RNG = np.random.default_rng(0)
# Clients want different things: b_i = A_i w_i + noise.
A = [RNG.standard_normal((n, DIM)) for n in SIZES]
B = [a @ RNG.standard_normal(DIM) + RNG.standard_normal(len(a)) for a in A]
DATA = [np.column_stack(pair) for pair in zip(A, B, strict=True)]


def make_task():
  def init(key):
    body, head = jnp.split(jax.random.normal(key, (DIM,)), [BODY])
    return {'body': body, 'head': head}

  def loss(params, batch, key):
    error = batch.x[:, :-1] @ flat(params) - batch.x[:, -1]
    return 0.5 * (batch.mask * error**2).sum() / batch.mask.sum()

  return one_number.make_task()._replace(init=init, loss=loss)


def flat(params):
  return jnp.concatenate([params['body'], params['head']])


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
  algorithm = build(name, make_task(), train=train)[0].algorithm
  data = from_lists(*DATA)
  server, clients = init_states(algorithm, data, KEY(0))
  cohorts = jnp.tile(jnp.arange(len(SIZES)), (rounds, 1))
  rounds_fn = make_rounds(make_round(algorithm))
  after, _, _ = rounds_fn(server, clients, cohorts, data, KEY(1))
  return flat(server.params), flat(after.params)


def affine(i, steps):
  """Return (M, s) with w after `steps` steps of client i = M w + s."""
  one = np.eye(DIM) - ETA * A[i].T @ A[i] / SIZES[i]
  shift = ETA * A[i].T @ B[i] / SIZES[i]
  matrix, offset = np.eye(DIM), np.zeros(DIM)
  for _ in range(steps):
    matrix, offset = one @ matrix, one @ offset + shift
  return matrix, offset


def fixed_point(steps, aggregation):
  """Return w = sum_i a_i (M_i^steps w + s_i)."""
  weights = np.array(SIZES if aggregation == 'examples' else [1, 1, 1])
  maps = [affine(i, steps) for i in range(len(SIZES))]
  matrix, offset = (
    np.tensordot(weights / weights.sum(), np.array(parts), 1)
    for parts in zip(*maps, strict=True)
  )
  return np.linalg.solve(np.eye(DIM) - matrix, offset)


def close(got, want):
  np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize('aggregation', ['examples', 'uniform'])
def test_fixed_point_of_several_local_steps(aggregation):
  """Near the optimum, but another point."""
  _, end = play('fedavg', rounds=600, epochs=5, aggregation=aggregation)
  close(end, fixed_point(5, aggregation))
  assert np.abs(end - fixed_point(1, aggregation)).max() > 1e-3


def test_frozen_head_is_a_smaller_problem():
  """The body solves H_bb b + H_bh h = c_b for the head h of the first day."""
  start, end = play('fedbabu', rounds=600)
  a, b = np.concatenate(A), np.concatenate(B)
  head = start[BODY:]
  assert (end[BODY:] == head).all()
  rest = b - a[:, BODY:] @ head
  close(end[:BODY], np.linalg.lstsq(a[:, :BODY], rest)[0])
