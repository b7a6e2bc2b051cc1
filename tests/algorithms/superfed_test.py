"""SuPerFed: what its golden cases do not say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  make_data,
  make_task,
  play,
)

from fedjax_pfl.algorithms import superfed
from fedjax_pfl.core import trees
from fedjax_pfl.federated.rounds import init_states

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()


def test_every_step_of_every_client_draws_anew():
  """Local models of 1, a server of 0 and no learning: losses are lambdas."""
  train = TRAIN._replace(learning_rate=lambda clock: 0.0)
  task = TASK._replace(
    init=lambda key: jax.tree.map(jnp.zeros_like, TASK.init(key)),
    loss=lambda params, batch, key: params['body']['kernel'].mean(),
  )
  (stage,) = build('superfed', task, train=train, phase_start=0.0, nu=0.0)

  def init_client(server, data, rng):
    client = stage.algorithm.init_client(server, data, rng)
    return superfed.Client(jax.tree.map(jnp.ones_like, client.local))

  algorithm = stage.algorithm._replace(init_client=init_client)
  _, _, history = play([stage._replace(algorithm=algorithm)], DATA, rounds=2)
  drawn = np.concatenate([one['losses'].ravel() for one in history])
  drawn = drawn[drawn != 0]  # after a client's last step
  steps = sum(int(one['num_steps'].sum()) for one in history)
  assert len(drawn) == len(np.unique(drawn)) == steps > 20
  assert drawn.min() < 0.2 and drawn.max() > 0.8 and (drawn < 1).all()


@pytest.mark.parametrize(
  ('protocol', 'share', 'rounds'),
  [
    ('paper', 0.4, [('federation', 4), ('personalisation', 6)]),
    ('first_code', 0.4, [('federation', 3), ('personalisation', 7)]),
    ('paper', 0, [('personalisation', 10)]),
    ('first_code', 1.0, [('federation', 10)]),
  ],
)
def test_rounds_of_the_phases(protocol, share, rounds):
  train = TRAIN._replace(rounds=10)
  stages = build('superfed', train=train, protocol=protocol, phase_start=share)
  assert [(stage.name, stage.rounds) for stage in stages] == rounds


@pytest.mark.parametrize('pairing', ['fresh', 'stale'])
def test_views_lie_between_the_models(pairing):
  stages = build('superfed', grid=(0, 0.25, 1), pairing=pairing)
  algorithm = stages[-1].algorithm
  server, clients = init_states(stages[0].algorithm, DATA, KEY(1))
  server = server._replace(params=TASK.init(KEY(9)))  # after some rounds
  client = trees.gather(clients, 0)
  views = algorithm.personalize(server, client, client_of(DATA, 0), KEY(0))
  assert list(views) == ['initial', 'mix_0.0', 'mix_0.25', 'mix_1.0']
  start = client.federated if pairing == 'stale' else server.params
  assert_same_bits(views['initial'], server.params)
  assert_same_bits(views['mix_0.0'], start)
  assert_same_bits(trees.combine(client.local, start), views['mix_1.0'])
  middle = (
    0.75 * start['head']['kernel'] + 0.25 * client.local['head']['kernel']
  )
  assert_close(views['mix_0.25']['head']['kernel'], middle)
  assert_same_bits(views['mix_0.25']['head']['bias'], start['head']['bias'])
