"""Correlated noise: its recursion, whom it hides, what it costs and spares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, TRAIN, build, make_data, play
from scipy.linalg import toeplitz

from fedjax_pfl.around import accountant, banded_noise, privacy
from fedjax_pfl.around.accountant import Rounds
from fedjax_pfl.federated.sampling import joins, poisson_cohorts, poisson_places

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROUNDS, DELTA = 60, 1e-3


def strategy(bands, rounds=ROUNDS):
  """Return C [T, T]."""
  c = banded_noise.coefficients(bands)
  return np.tril(toeplitz(np.pad(c, (0, rounds - bands))))


def test_noise_is_that_of_the_inverse_and_its_sums_have_less(accounting):
  """At equal budget; expected cohorts of 18 of 180 clients."""
  z = jax.random.normal(KEY(0), (ROUNDS, 50, 100))
  past = {'leaf': banded_noise.begin(z[0], 10)}
  _, noise = jax.lax.scan(
    lambda past, z: banded_noise.correlate({'leaf': z}, past, 10)[::-1], past, z
  )
  z, got = (x.reshape(ROUNDS, -1) for x in (z, noise['leaf']))
  inverse = np.linalg.inv(strategy(10))
  np.testing.assert_allclose(got, inverse @ z, atol=1e-4)
  errors = []
  for bands, rows in ((1, z), (10, got)):
    plan = (Rounds(ROUNDS, 18.0, 180, 'cyclic', bands),)
    noise = accountant.find_noise(8.0, DELTA, plan)
    errors.append(noise * np.cumsum(rows, 0).std())
  assert errors[1] < 0.8 * errors[0]


def test_rounds_of_a_client_move_other_rows_by_a_column_of_norm_one():
  """And it joins those of its group, with the probability of the budget."""
  rounds, bands, clients, rate = 2000, 4, 20, 0.6
  size = poisson_places(clients // bands, rate)
  cohorts = poisson_cohorts(KEY(5), 0, rounds, clients, size, bands)

  def joined(number, id):
    return joins(
      jax.random.fold_in(jax.random.fold_in(KEY(5), number), id), rate
    )

  over_clients = jax.vmap(joined, (None, 0))
  drawn = jax.vmap(over_clients)(jnp.arange(rounds), cohorts)
  there = np.zeros((rounds, clients), bool)
  np.put_along_axis(there, np.asarray(cohorts), np.asarray(drawn), axis=1)
  assert np.abs(bands * there.mean(0) - rate).max() < 0.1
  moved = strategy(bands, rounds)
  assert ((moved != 0).astype(int) @ there).max() == 1  # rows are disjoint
  norms = np.linalg.norm(moved, axis=0)
  assert norms.max() == pytest.approx(1) == norms[-bands]


def test_each_stage_begins_its_noise_anew():
  """Of FedDBE, whose first rounds have all clients, and other uploads."""
  stages = build('feddbe', train=TRAIN._replace(aggregation='uniform'))
  plain = privacy.Mechanism(0.3, 1.0, expected=4.0)
  data, mechanisms = make_data(), (plain, plain._replace(bands=3))
  independent = tuple(privacy.private(stage, plain) for stage in stages)
  changes = privacy.changes_of(independent, data)
  each = zip(stages, mechanisms, changes, strict=True)
  own = tuple(
    privacy.private(stage, how._replace(change=change))
    for stage, how, change in each
  )
  privacy.check(own, data, 'feddbe')
  past = play(own, data, rounds=1)[0].privacy.noise
  for leaf in jax.tree.leaves(past):
    assert leaf.shape[0] == 2 and leaf[0].any() and not leaf[1].any()


def test_a_method_that_sends_nothing_has_no_noise():
  (stage,), data = build('local_only'), make_data()
  plain = privacy.Mechanism(0.3, 1.0, expected=4.0)
  (changes,) = privacy.changes_of([privacy.private(stage, plain)], data)
  stage = privacy.private(stage, plain._replace(bands=3, change=changes))
  server, *_ = play([stage], data, rounds=1)
  assert not jax.tree.leaves(server.privacy.noise)
