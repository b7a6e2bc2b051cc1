"""Ditto and Per-FedAvg: rounds so small that the docstring does the arithmetic.

The model is that of one_number.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, client_of, from_lists
from one_number import make_task, training

from fedjax_pfl.algorithms import load
from fedjax_pfl.federated.rounds import init_states, make_round

pytestmark = pytest.mark.usefixtures('quick_compiler')


def ditto(rounds=1, momentum=0.0, **hp):
  """Return the algorithm, and server and clients after some rounds.

  Two clients, of which the second is in the cohort of every other round.
  """
  module = load('ditto')
  train = training(0.5, epochs=2)._replace(
    learning_rate=lambda clock: jnp.array([0.5, 0.25])[clock],
    momentum=momentum,
  )
  hp = module.HParams(train, lam=0.5, **hp)
  algorithm = module.build(make_task(), hp)[0].algorithm
  data = from_lists([[8.0]], [[4.0]])
  server, clients = init_states(algorithm, data, KEY(0))
  round_fn = make_round(algorithm)
  for number in range(rounds):
    cohort = jnp.arange(2 - number % 2)
    server, clients, _ = round_fn(server, clients, cohort, data, KEY(0))
  return algorithm, server, clients


def personal_models(algorithm, server, clients):
  views = jax.vmap(algorithm.personalize, (None, 0, None, None))(
    server, clients, None, None
  )
  return jax.tree.leaves(views['personal'])[0].tolist()


def test_ditto_pulls_its_own_model_to_the_global_one():
  """lam = 1/2; eta = 1/2, then 1/4; x = 8 and 4; body = head, both from 0.

  round 1   global 0:    g = -8            4       g = 0              4
            global 1:    g = -4            2       g = 0              2
            personal 0:  g = -8 + 0/2      4       g = 0 + 4/2        3
            personal 1:  g = -4 + 0/2      2       g = 0 + 2/2        1.5
  round 2   global 0:    g = 6 - 8         3.5     g = 7 - 8          3.75
            personal 0:  g = 6 - 8 + 0/2   3.5     g = -1 + 0.5/2     3.6875
  """
  algorithm, server, clients = ditto()
  assert server.params['body'] == 3.0
  assert personal_models(algorithm, server, clients) == [3.0, 1.5]
  algorithm, server, clients = ditto(rounds=2)
  assert server.params['body'] == 3.75
  assert personal_models(algorithm, server, clients) == [3.6875, 1.5]


def test_the_momentum_of_the_global_model_is_not_that_of_dittos_own():
  algorithm, server, clients = ditto(momentum=0.5)
  assert server.params['body'] != 3.0
  assert personal_models(algorithm, server, clients) == [3.0, 1.5]


def test_released_ditto_has_old_models_outside_the_cohort():
  """eta = 1/2 in both rounds; the pull is eta lam = 1/4 of what is too far.

  round 1   client 0:  0 + 4 - 0    = 4        4 - 0 - 4/4       = 3
            client 1:  0 + 2 - 0    = 2        2 - 0 - 2/4       = 1.5
            global     2.25
  round 2   client 0:  2.25 + 1.75  = 4        4 - 0 - 1.75/4    = 3.5625
  """
  algorithm, server, clients = ditto(protocol='released')
  assert server.params['body'] == 2.25
  assert personal_models(algorithm, server, clients) == [3.0, 1.5]
  algorithm, server, clients = ditto(rounds=2, protocol='released')
  assert server.params['body'] == 3.5625
  assert personal_models(algorithm, server, clients) == [3.5625, 2.25]


def meta_update(train, *examples, task=None, **hp):
  """Return what one client sends in Per-FedAvg, and its metrics."""
  module = load('per_fedavg')
  hp = module.HParams(train._replace(shuffle=False), **hp)
  algorithm = module.build(task or make_task(), hp)[0].algorithm
  data = client_of(from_lists([[x] for x in examples]), 0)
  server = algorithm.init_server(KEY(0))
  _, params, metrics = algorithm.local_update(server, (), data, KEY(0))
  return params, metrics


def test_inner_and_outer_steps_share_their_momentum():
  """alpha = 1/4, beta = 1/2, mu = 1/2; one batch, x = 16: J = 1/1 + 1 = 2.

  inner:  g = 0 - 16 = -16    m = -16             4, from 0     loss 128
  outer:  g = 8 - 16 = -8     m = -16/2 - 8 = -16 8, from 0     loss 32
  inner:  g = 16 - 16 = 0     m = -16/2 = -8      10, from 8    loss 0
  outer:  g = 20 - 16 = 4     m = -8/2 + 4 = 0    8, from 8     loss 8
  """
  train = training(0.25, momentum=0.5)
  params, metrics = meta_update(train, 16.0, beta=0.5)
  assert params == {'body': 8.0, 'head': 8.0}
  assert metrics['losses'].tolist() == [128.0, 32.0, 0.0, 8.0]
  assert metrics['loss'] == (32 + 8) / 2
  assert metrics['num_steps'] == 4


def test_second_order_goes_through_the_inner_step():
  """alpha = 1/4, beta = 1/2, mu = 1/2, x = 16; body and head move alike.

  Their sum s goes to s' = s - 2 alpha (s - x): g = (1 - 2 alpha) (s' - x).

  s = 0   s' = 8     g = -8/2 = -4   m = -4            2      loss 32
  s = 4   s' = 10    g = -6/2 = -3   m = -4/2 - 3 = -5 4.5    loss 18
  """
  train = training(0.25, momentum=0.5)
  params, metrics = meta_update(train, 16.0, beta=0.5, second_order=True)
  assert params == {'body': 4.5, 'head': 4.5}
  assert metrics['losses'].tolist() == [32.0, 18.0]
  assert metrics['loss'] == (32 + 18) / 2
  assert metrics['num_steps'] == 2 * 4


def test_orders_differ_by_curvature_alone():
  """Where the loss is linear in w: the same batches, in the same order."""
  means = jnp.array([1.0, 2.0, 4.0, 8.0, 16.0])

  def loss(params, batch, key):
    mean = (batch.mask * batch.x[:, 0]).sum() / batch.mask.sum()
    return params['body'] * mean + params['head'] * mean**2

  task = make_task()._replace(loss=loss)
  train = training(0.5, batch_size=2, epochs=2)
  first, _ = meta_update(train, *means.tolist(), task=task)
  second, _ = meta_update(train, *means.tolist(), task=task, second_order=True)
  # Batches 1.5, 6, 16: outer steps on 6 and, after 16, on the first again.
  assert first['body'] == -0.5 * 2 * (6 + 1.5)
  assert second == first


@pytest.mark.parametrize(
  'protocol, adapted_twice', [('paper', 16.0), ('released', 11.2)]
)
def test_adaptation_is_one_step_or_two(protocol, adapted_twice):
  """eta = 1/4, mu = 1/2, x = 16, s = 0; the second rate is 1/4 or 0.1.

  one:  g = -16                     s = 2 * 4 = 8
  two:  g = -8    m = -8 - 8 = -16  s = 8 + 2 * 4 = 16, or 8 + 3.2 = 11.2
  """
  module = load('per_fedavg')
  train = training(0.25, momentum=0.5)
  hp = module.HParams(train, protocol=protocol)
  algorithm = module.build(make_task(), hp)[0].algorithm
  data = client_of(from_lists([[16.0]]), 0)
  server = algorithm.init_server(KEY(0))
  views = algorithm.personalize(server, (), data, KEY(0))
  sums = {name: view['body'] + view['head'] for name, view in views.items()}
  assert sums['initial'] == 0 and sums['adapted'] == 8.0
  np.testing.assert_allclose(sums['adapted_twice'], adapted_twice, rtol=1e-6)
