"""Rounds so small that the docstring does the arithmetic.

The model is that of one_number.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import KEY, client_of, from_lists
from one_number import IS_HEAD, make_task, play, training

from fedjax_pfl.client import local_training, optimisers
from fedjax_pfl.core import trees

pytestmark = pytest.mark.usefixtures('quick_compiler')


def fit(train, *examples, w=0.0, clock=0):
  """Return w and the losses of one client's fit in stored order."""

  def loss(w, batch, key):
    return (
      0.5 * (batch.mask * (w - batch.x[:, 0]) ** 2).sum() / batch.mask.sum()
    )

  data = client_of(from_lists([[x] for x in examples]), 0)
  w, info = local_training.fit(
    loss,
    jnp.array(w),
    data,
    KEY(0),
    tx=train.sgd(jnp.array(clock)),
    batching=local_training.Batching(
      train.batch_size, train.epochs, lambda x, key: x, shuffle=False
    ),
  )
  return float(w), info.losses.tolist()


def test_two_steps_with_momentum():
  """eta = 1/2, beta = 1/2, one example x = 8, w = 0.

  step 1:  g = 0 - 8 = -8   m = -8                 w = 0 + 4 = 4    loss 32
  step 2:  g = 4 - 8 = -4   m = -8/2 - 4 = -8      w = 4 + 4 = 8    loss 8
  """
  w, losses = fit(training(0.5, momentum=0.5, epochs=2), 8.0)
  assert w == 8.0
  assert losses == [32.0, 8.0]


def test_momentum_starts_anew_in_every_round():
  """A client that ends on its optimum stays there in the next round.

  x = 16, eta = 1/4, beta = 1/2; body and head move alike, w is their sum:

  step 1:  g = 0 - 16 = -16   m = -16              body = head = 4    w = 8
  step 2:  g = 8 - 16 = -8    m = -16/2 - 8 = -16  body = head = 8    w = 16

  With the old buffer the next step would be m = -8, body = head = 10.
  """
  train = training(0.25, momentum=0.5, epochs=2)
  first, second = play('fedavg', make_task(), train, [16.0], rounds=2)
  assert first == {'body': 8.0, 'head': 8.0}
  assert second == first


def test_head_learns_at_its_own_rate():
  """eta = 1/2, beta = 1/2, rho = 1/4, x = 16, body = head = 0.

  step 1:  g = 0 - 16 = -16   m = -16             body = 8     head = 2
  step 2:  g = 10 - 16 = -6   m = -16/2 - 6 = -14 body = 15    head = 3.75
  """
  train = training(0.5, momentum=0.5, epochs=2)
  (after,) = play('fedavg', make_task(), train, [16.0], head_lr_ratio=0.25)
  assert after == {'body': 15.0, 'head': 3.75}


def test_partial_last_batch_is_a_mean_over_its_own():
  """eta = 1/2, batches (1, 3) and (5), w = 0.

  step 1:  g = 0 - (1 + 3)/2 = -2   w = 1     loss (1 + 9)/4 = 2.5
  step 2:  g = 1 - 5 = -4           w = 3     loss 8
  A padded zero in the second batch would make it w = 1.75.
  """
  w, losses = fit(training(0.5, batch_size=2), 1.0, 3.0, 5.0)
  assert w == 3.0
  assert losses == [2.5, 8.0]


def test_weight_decay_joins_the_gradient():
  """eta = 1/2, decay = 1/4, beta = 1/2, x = 0, w = 8.

  step 1:  g = 8 + 8/4 = 10        m = 10           w = 8 - 5 = 3
  step 2:  g = 3 + 3/4 = 3.75      m = 5 + 3.75     w = 3 - 4.375 = -1.375
  """
  train = training(0.5, momentum=0.5, epochs=2, weight_decay=0.25)
  w, _ = fit(train, 0.0, w=8.0)
  assert w == -1.375


def test_learning_rate_is_that_of_the_round():
  """x = 8, w = 0: one step of eta gives w = 8 eta."""
  schedule = optimisers.step_schedule(0.5, 4)
  train = local_training.LocalTraining(
    learning_rate=schedule, momentum=0, epochs=1
  )
  got = [fit(train, 8.0, clock=clock)[0] for clock in range(4)]
  np.testing.assert_allclose(got, [4, 4, 0.4, 0.04], rtol=1e-6)


@pytest.mark.parametrize(
  'rounds, first_of_second, first_of_third',
  [
    (1, None, None),
    (2, 1, None),  # floor(K/2) = floor(3K/4) = 1: one drop
    (3, 1, 2),
    (4, 2, 3),
    (32, 16, 24),
    (320, 160, 240),
  ],
)
def test_learning_rate_drops(rounds, first_of_second, first_of_third):
  """By rounds, at floor(K/2) and floor(3K/4); to a tenth each time."""
  schedule = optimisers.step_schedule(0.1, rounds)
  want = np.full(rounds, 0.1)
  want[first_of_second or rounds :] = 0.01
  want[first_of_third or rounds :] = 0.001
  got = jax.vmap(schedule)(jnp.arange(320))
  np.testing.assert_allclose(got[:rounds], want, rtol=1e-6)


def test_drops_may_be_elsewhere():
  got = [
    float(optimisers.step_schedule(1.0, 10, (0.2,))(r)) for r in (0, 1, 2, 9)
  ]
  np.testing.assert_allclose(got, [1, 1, 0.1, 0.1], rtol=1e-6)


def test_decay_has_begun_in_the_first_round():
  schedule = optimisers.step_schedule(1.0, 10, (0.5,), 0.9)
  got = [float(schedule(r)) for r in (0, 1, 5)]
  np.testing.assert_allclose(got, [0.9, 0.81, 0.1 * 0.9**6], rtol=1e-6)


@pytest.mark.parametrize(
  'aggregation, mean', [('uniform', 5.0), ('examples', 3.5)]
)
def test_weights_of_clients(aggregation, mean):
  """One step of eta = 1/2 on two numbers takes body + head to mean x.

  client 0: (1, 2, 3) -> 2     client 1: (8) -> 8
  uniform:  (2 + 8)/2 = 5      examples: (3*2 + 1*8)/4 = 3.5
  """
  train = training(0.5, aggregation=aggregation)
  (after,) = play('fedavg', make_task(), train, [1.0, 2.0, 3.0], [8.0])
  assert after == {'body': mean / 2, 'head': mean / 2}


def test_client_without_examples_sends_what_it_got():
  """Uniform weights: (8 + 0)/2 = 4; weights n_i: 8."""
  for aggregation, mean in (('uniform', 4.0), ('examples', 8.0)):
    train = training(0.5, aggregation=aggregation)
    (after,) = play('fedavg', make_task(), train, [8.0], [])
    assert after['body'] + after['head'] == mean


def test_weights_of_a_cohort_without_examples():
  """Not 0 / 0: equal ones, of models that have not moved."""
  examples = training(0.5, aggregation='examples')
  assert examples.weights(np.array([0, 0])).tolist() == [1, 1]
  assert examples.weights(np.array([0, 3])).tolist() == [0, 3]


def test_frozen_head_moves_neither_by_gradient_nor_by_decay():
  """eta = 1/2, decay = 1/4, x = 1, body = 4, head = 2:

  step 1:  g = 4 + 2 - 1 + 4/4 = 6          body = 4 - 3 = 1
  step 2:  g = 1 + 2 - 1 + 1/4 = 2.25       body = 1 - 1.125 = -0.125

  The same in one round of two epochs and in two rounds of one: a head that
  moved during a round, and went back after it, would move the second step.
  """
  task = make_task(body=4.0, head=2.0)
  train = training(0.5, weight_decay=0.25)
  want = {'body': -0.125, 'head': 2.0}
  (after,) = play('fedbabu', task, train._replace(epochs=2), [1.0])
  assert after == want
  assert play('fedbabu', task, train, [1.0], rounds=2)[1] == want


def test_gradients_pass_through_the_frozen_head():
  """loss = 1/2 (head * body - x)^2: the body's gradient has the head in it.

  body = 1, head = 3, x = 5: g = 3 (3 - 5) = -6; eta = 1/2: body = 4.
  """

  def loss(params, batch, key):
    return 0.5 * jnp.mean((params['head'] * params['body'] - batch.x) ** 2)

  params, _ = local_training.fit(
    loss,
    {'body': jnp.array(1.0), 'head': jnp.array(3.0)},
    client_of(from_lists([[5.0]]), 0),
    KEY(0),
    tx=optimisers.freeze_except(optax.sgd(0.5), trees.invert(IS_HEAD)),
    batching=local_training.Batching(1, 1, lambda x, key: x),
  )
  assert {part: float(w) for part, w in params.items()} == {
    'body': 4.0,
    'head': 3.0,
  }
