"""FedConcat and SuPerFed: what their golden cases do not say."""

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
  refused,
)

from fedjax_pfl.algorithms import superfed
from fedjax_pfl.client import clustering
from fedjax_pfl.core import trees
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.client_data import pool_of
from fedjax_pfl.federated.rounds import begin, init_states, make_round

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()
ALL_CLIENTS = tuple(range(len(DATA.count)))
# Neither noise nor statistics of the batch: features can be stored.
PLAIN = make_task(noise=0, normalised=False)
PLAIN = PLAIN._replace(augment=PLAIN.normalise, batch_independent=True)


def small(task=None, **hp):
  hp = {'clusters': 2, 'noise_inputs': 100, 'classifier_rounds': 2, **hp}
  return build('fedconcat', task, **hp)


@pytest.mark.long
def test_inferred_clusters_average_the_models_of_the_first_round():
  inference, rest, _ = small(distributions='inferred')
  assert inference.full_participation and (inference.rounds, rest.rounds) == (
    1,
    2,
  )
  server, clients = begin(inference, DATA, KEY(1))
  round_fn = make_round(inference.algorithm)
  cohort = jnp.array(ALL_CLIENTS)
  server, clients, _ = round_fn(server, clients, cohort, DATA, KEY(2))
  np.testing.assert_allclose(clients.shares.sum(1), 1, rtol=1e-5)
  after, cluster = rest.initialize(server, clients, DATA)
  shares = np.where(DATA.count[:, None] > 0, clients.shares, 0)
  want = clustering.cluster(shares, 2, int(server.key[0]))
  np.testing.assert_array_equal(cluster, want)
  assert after.round == 1
  for group in (0, 1):
    members = np.flatnonzero(want == group)
    mean = trees.weighted_mean(
      trees.gather(clients.params, members), DATA.count[members]
    )
    assert_close(trees.gather(after.params, group), mean)


@pytest.mark.long
def test_stored_features_change_nothing(float64):
  """Where it is exact, and 'exact' knows that it is."""
  results = {}
  for cache in ('exact', 'always', 'never'):
    stages = small(PLAIN, cache=cache)
    results[cache], _, history = play(stages, DATA)
    states = stages[-1].initialize(*begin(stages[0], DATA, KEY(0)), DATA)
    is_stored = stages[-1].prepare_data(states[0], DATA) is not DATA
    assert is_stored == (cache != 'never')
    assert history[-1]['num_steps'].max() <= 3
  assert_same_bits(results['exact'], results['always'])
  assert_close(results['never'], results['always'])


@pytest.mark.parametrize(
  'task', [make_task(), make_task()._replace(batch_independent=True)]
)
def test_features_are_not_stored_where_that_is_not_exact(task):
  """A layer depends on the batch, or images are augmented."""
  *_, last = small(task)
  server, _ = last.initialize(*begin(small(task)[0], DATA, KEY(0)), DATA)
  assert last.prepare_data(server, DATA) is DATA


@pytest.mark.parametrize(
  ('hp', 'words'),
  [
    ({'clusters': 7}, '6 clients have'),
    ({'clusters': 7, 'distributions': 'inferred'}, '6 clients have 6 diff'),
    ({'clusters': 4, 'cap_factor': 1.05}, '6 clients in 4 clusters, instead'),
  ],
)
def test_clusters_that_clients_cannot_fill(hp, words):
  """Of the seven clients one has no examples; on an accelerator, too."""
  with compiling_for('gpu'):
    data = DATA._replace(x=pool_of(DATA.x))
  assert words in refused(small(**hp)[0].validate_clients, data)
  small(cap_factor=1.2)[0].validate_clients(DATA)


# ---- SuPerFed

TASK = make_task()


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
