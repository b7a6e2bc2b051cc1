"""Simulated time, shares of local steps, and clients that are late."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  COHORT,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  every_method,
  make_data,
  make_task,
  refused,
  round_of,
)

from fedjax_pfl.around import sim_time
from fedjax_pfl.federated.rounds import begin

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()
STEPS = np.array([10, 10, 10, 0, 4])
SPEEDS = np.array([1.0, 0.35, 0.05, 1.0, 2.0])


def with_work(work):
  return DATA._replace(work=jnp.asarray(work, jnp.float32))


# ---- who has time for how much


@pytest.mark.parametrize(
  ('policy', 'possible'),
  [('drop', [10, 0, 0, 0, 4]), ('partial', [10, 3, 0, 0, 4])],
)
def test_shares_give_the_steps_that_fit(policy, possible):
  work = sim_time.shares(STEPS, SPEEDS, 10.0, policy)
  assert np.floor(work * STEPS).tolist() == possible
  assert (work == 1).tolist() == [True, False, False, True, True]
  # In floats 100 x 0.29 is 28.999999999999996.
  assert sim_time.shares(np.array([29]), np.array([0.29]), 100.0, policy) == 1


def test_a_round_lasts_as_long_as_the_slowest_sender():
  """Or until the deadline, where somebody sends nothing."""
  cohorts, steps = np.array([[0, 4], [0, 1]]), np.array([[10, 4], [10, 3]])
  missing = np.array([[False, False], [False, True]])
  always = sim_time.Timing(SPEEDS)
  assert always.advance(1.0, 2, cohorts, steps, missing) == 21.0
  until = sim_time.Timing(SPEEDS, deadline=12.0)
  assert until.advance(1.0, 2, cohorts, steps, missing) == 23.0


def test_speeds_are_those_of_the_seed_or_of_the_file(tmp_path):
  drawn = sim_time.draw_speeds(3, 0.5, 4000)
  assert np.log(drawn).std() == pytest.approx(0.5, rel=0.05)
  assert not np.array_equal(drawn, sim_time.draw_speeds(4, 0.5, 4000))
  (tmp_path / 'speeds').write_text('1 2.5\n3')
  assert sim_time.read_speeds(tmp_path / 'speeds', 3).tolist() == [1, 2.5, 3]
  assert '3 numbers, from 1 on' in refused(
    sim_time.read_speeds, tmp_path / 'speeds', 4
  )
  assert 'No such file' in refused(sim_time.read_speeds, tmp_path / 'none', 4)
  inside = tmp_path / 'speeds' / 'x'
  assert 'Not a directory' in refused(sim_time.read_speeds, inside, 4)


# ---- partial work


def test_a_share_of_the_steps_is_the_beginning_of_all():
  """Half of two epochs is one epoch, to the bit."""
  task, client = make_task(), 0  # 7 examples, 2 batches
  own = client_of(DATA, client)
  start = task.init(KEY(0))

  def fit(data, epochs=2):
    train = TRAIN._replace(epochs=epochs)
    return train.fit(task, start, data, KEY(1), jnp.array(0))

  want, whole = fit(own, 1)
  got, half = fit(own._replace(work=jnp.array((2 + 0.5) / 4)))
  assert_same_bits(got, want)
  assert half.num_steps == whole.num_steps == 2
  assert not half.losses[2:].any() and half.losses[:2].all()
  assert fit(own._replace(work=jnp.array(1.0)))[1].num_steps == 4


@every_method(1)
def test_every_method_does_no_more_than_fits(name):
  """And as much as without a deadline, where that fits."""
  (stage, *_) = build(name, train=TRAIN)
  states = begin(stage, DATA, KEY(1))
  cohort, round_fn = jnp.array(COHORT), round_of(stage)
  *want, plain = round_fn(*states, cohort, DATA, KEY(2))
  *got, _ = round_fn(*states, cohort, with_work(np.ones(7)), KEY(2))
  assert_close(tuple(got), tuple(want))
  steps = np.asarray(plain['num_steps'])
  steps_of = sim_time.steps_function(stage, *states, DATA)
  planned = sim_time.planned_steps(steps_of, DATA.count)
  assert planned[list(COHORT)].tolist() == steps.tolist()
  for possible in (0, 1, 5):
    part = sim_time.shares(planned, np.ones(7), possible + 1e-3, 'partial')
    *_, some = round_fn(*states, cohort, with_work(part), KEY(2))
    most = np.minimum(steps, possible)
    assert (np.asarray(some['num_steps']) <= most).all()


# ---- who is late; what the server makes of it: failures_test.py


@pytest.mark.parametrize(
  ('method', 'seconds', 'policy'),
  # pFedMe's steps are in groups of five.
  [
    ('fedavg', 1.5, 'drop'),
    ('fedavg', 1.5, 'partial'),
    ('pfedme', 5, 'partial'),
  ],
)
def test_a_deadline_that_no_client_meets_is_refused(method, seconds, policy):
  stages = build(method, train=TRAIN)
  how = sim_time.Speeds('lognormal', deadline=seconds, late_clients=policy)
  message = refused(
    sim_time.make_timing, stages, DATA, np.full(7, 0.5), how, print
  )
  assert 'all its local steps' in message and 'deadline=' in message
