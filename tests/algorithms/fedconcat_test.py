"""FedConcat: what its golden cases do not say."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  KEY,
  assert_close,
  assert_same_bits,
  build,
  make_data,
  make_task,
  play,
  refused,
)

from fedjax_pfl.client import clustering
from fedjax_pfl.core import trees
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.client_data import pool_of
from fedjax_pfl.federated.rounds import begin, make_round

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
