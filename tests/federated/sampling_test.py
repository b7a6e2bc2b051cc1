"""How many clients join a round; a sampler of the user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused
from pages import code_of
from small_runs import make_experiment, make_settings

import fedjax_pfl as pfl
from fedjax_pfl.core.algorithm import JOINED
from fedjax_pfl.federated import sampling
from fedjax_pfl.federated.cohort import client_update, gather
from fedjax_pfl.federated.rounds import init_states


def test_clients_join_a_round_as_often_as_the_budget_says():
  """With a rate 5 % too high a budget of epsilon 7.90 is 8.28 in truth.

  Of 40 clients in 4,000 rounds 32,000 join, with a standard error of 0.5 %: the
  bound is at five of these errors, and such a rate at ten. In no round more
  join than a cohort has places for.
  """
  from scipy.stats import binom  # takes a second to load

  rounds, clients, rate = 4000, 40, 0.2
  experiment = make_experiment(
    sampling='poisson', num_clients=clients, client_fraction=rate
  )
  (stage,), data = experiment.stages, experiment.train
  sampler, key = experiment.sampler_of(stage), jax.random.key(5)
  server, states = init_states(stage.algorithm, data, key)

  def joined(number, ids):
    now = server._replace(round=number)
    update = client_update(stage.algorithm, now, data, key)
    _, _, metrics = jax.vmap(update)(gather(states, ids, data))
    return metrics[JOINED].sum()  # so nothing is trained

  cohorts = sampler.draw(key, 7, rounds)
  size = cohorts.shape[1]
  assert binom.sf(size, clients, rate) <= 1e-15 and size < clients
  found = jax.jit(jax.vmap(joined))(7 + jnp.arange(rounds), cohorts)
  error = np.sqrt((1 - rate) / (rounds * clients * rate))
  assert error == pytest.approx(0.005)
  assert found.mean() == pytest.approx(clients * rate, rel=5 * error)
  assert sampler.mean_size == clients * rate


@pytest.fixture
def settings(tmp_path):
  (code,) = code_of('docs/howto/own_loss.md', 'A sampler')
  (tmp_path / 'draw.py').write_text(code)
  name = f'{tmp_path}/draw.py:by_size'
  small = make_settings(
    sampling=name, partition='dirichlet', dirichlet_beta=0.2
  )
  return pfl.load_code(small | {'model': 'convnet3'})


def test_large_clients_are_drawn_more_often(settings):
  own = pfl.build_experiment(settings)
  ids = np.asarray(own.sampler.draw(jax.random.key(0), 0, 400))
  assert ids.shape == (400, own.cohort_size)
  drawn = np.bincount(ids.ravel(), minlength=10)
  counts = np.asarray(own.train.count)
  assert np.corrcoef(drawn, counts)[0, 1] > 0.8
  later = own.sampler.draw(jax.random.key(0), 390, 10)
  assert np.array_equal(later, ids[390:])


def test_privacy_of_unknown_draws_is_refused(settings):
  dp = {**settings['dp'], 'clip': 1.0, 'epsilon': 8.0, 'delta': 1e-3}
  changes = {'dp': dp, 'save_clients': ()}
  message = refused(pfl.build_experiment, settings | changes)
  assert message.startswith('sampling: got ')


@pytest.mark.parametrize(
  'rows', [[[0, 0]], [[0, 5]], [[0, 1, 2]], [[0.0, 1.0]]]
)
def test_what_is_no_cohort_is_refused(rows):
  wrong = sampling.Sampler(lambda key, first, rounds: jnp.array(rows), 2)
  message = refused(sampling.checked, wrong, 5, 1)
  assert message.startswith('sampling: got ')


def test_a_run_that_draws_clients_twice_does_not_begin(settings, tmp_path):
  (tmp_path / 'twice.py').write_text(
    'import jax, fedjax_pfl as pfl\n'
    'def twice(counts, fraction):\n'
    '  def draw(key, first, rounds):\n'
    '    return jax.random.randint(key, (rounds, 9), 0, len(counts))\n'
    '  return pfl.Sampler(draw, 9)\n'
  )
  code = pfl.load_code({'sampling': f'{tmp_path}/twice.py:twice'})
  message = refused(pfl.build_experiment, settings | code)
  assert 'Likely cause: clients drawn with replacement' in message


def test_a_draw_that_does_not_ask_for_the_round_is_refused():
  key = jax.random.key(0)

  def draw(key, first, rounds):  # other cohorts, but for whatever `first`
    order = jax.random.permutation(key, 5 * rounds).reshape(rounds, 5) % 5
    return jnp.argsort(order, 1)[:, :2]

  one = sampling.Sampler(draw, 2)
  assert 'fold_in(key, round)' in refused(sampling.checked, one, 5, 1)
  known = sampling.Sampler(lambda key, first, rounds: jnp.array([[0, 4]]), 2)
  assert sampling.checked(known, 5, 1).draw(key, 0, 1).tolist() == [[0, 4]]


@pytest.mark.parametrize(('fraction', 'size'), [(0.25, 1), (0.5, 2), (0.8, 3)])
def test_clients_in_turn_come_again_after_all_others(fraction, size):
  sampler = sampling.checked(sampling.in_turn(4, fraction), 4, 8)
  turns = 4 // size
  cohorts = np.array(sampler.draw(jax.random.key(0), 0, 40 * turns)).reshape(
    40, -1
  )
  assert all(len({*order}) == turns * size for order in cohorts.tolist())
  assert len({*map(tuple, cohorts.tolist())}) > 3
  assert sampler.accounting is None
