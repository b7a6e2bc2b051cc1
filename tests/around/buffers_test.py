"""Buffers of late uploads: their schedule, and the server's steps by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  build,
  make_data,
  refused,
  round_of,
)

from fedjax_pfl.around.buffers import (
  Buffers,
  Schedule,
  buffered,
  make_schedule,
  only_stage,
  places_of_versions,
)
from fedjax_pfl.federated.rounds import begin

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA, K = make_data(), 7
UNIFORM = TRAIN._replace(aggregation='uniform', learning_rate=lambda clock: 0.1)


def test_a_schedule_by_hand():
  """Client 0 takes 5 seconds, 1 and 2 take 2; two at work, buffers of one."""
  durations, order = np.array([5.0, 2.0, 2.0]), np.arange(3)
  schedule = make_schedule(durations, [order] * 4, 2, 1)
  # Client 1 begins at 0, 2 and 4; 0 ends at 5, two versions after its download.
  assert schedule.seconds.tolist() == [2, 4, 5, 6]
  assert schedule.cohorts.ravel().tolist() == [1, 1, 0, 1]
  assert schedule.staleness.ravel().tolist() == [0, 0, 2, 1]


@pytest.mark.parametrize(('at_work', 'size'), [(4, 4), (5, 2), (2, 6), (7, 7)])
def test_no_client_works_twice_and_at_most_m_at_a_time(at_work, size):
  rng = np.random.default_rng(0)
  orders = [rng.permutation(K) for _ in range(40)]
  schedule = make_schedule(rng.exponential(size=K), orders, at_work, size)
  for number, (cohort, tau) in enumerate(
    zip(schedule.cohorts, schedule.staleness, strict=True)
  ):
    assert len({*cohort}) == size and (tau <= number).all()
  assert (np.diff(schedule.seconds) >= 0).all()
  equal = make_schedule(np.ones(K), orders, at_work, at_work)
  assert not equal.staleness.any()
  assert equal.cohorts.tolist() == [sorted(o[:at_work]) for o in orders]


def test_a_version_is_kept_until_the_last_client_that_began_with_it():
  late = np.array([[0], [1], [0], [3], [1], [1]])  # versions 0, 0, 3 and 4
  assert places_of_versions(late).tolist() == [0, 2, 2, 1, 0, 2, 2]
  assert places_of_versions(late * 0).tolist() == [1] * 7


def test_without_staleness_it_is_the_method():
  (stage,) = build('fedper', train=TRAIN)
  cohorts = np.array([[0, 3, 4], [1, 4, 5]])
  schedule = Schedule(cohorts, np.zeros_like(cohorts), np.arange(2.0))
  own = buffered(stage, Buffers(schedule, K))
  states, wanted = (begin(one, DATA, KEY(1)) for one in (own, stage))
  for cohort in jnp.asarray(cohorts):
    *states, _ = round_of(own)(*states, cohort, DATA, KEY(2))
    *wanted, _ = round_of(stage)(*wanted, cohort, DATA, KEY(2))
  assert_close((states[0].own, states[1].own), tuple(wanted))


def test_what_is_sent_once_is_that_of_the_method():
  (stage,) = build('partial', frozen='body/bias')
  schedule = Schedule(np.zeros((1, 1), int), np.zeros((1, 1), int), np.ones(1))
  server, _ = begin(own := buffered(stage, Buffers(schedule, K)), DATA, KEY(0))
  sent = own.initial_broadcast(server)
  assert_close(sent, stage.initial_broadcast(server.own))
  assert jax.tree.leaves(sent)


def test_a_late_change_is_of_its_version_and_scaled():
  """w_2 = w_1 + (SGD(w_0) - w_0) / sqrt(2), and w_3 with one of each kind."""
  (stage,) = build('fedavg', train=UNIFORM)
  cohorts = np.array([[0, 3], [4, 1], [5, 4]])
  staleness = np.array([[0, 0], [1, 1], [0, 2]])
  schedule = Schedule(cohorts, staleness, np.arange(3.0))
  own = buffered(stage, Buffers(schedule, K))
  server, clients = begin(own, DATA, KEY(1))
  plain = begin(stage, DATA, KEY(1))[0]
  versions = [plain.params]
  for number, (cohort, tau) in enumerate(zip(cohorts, staleness, strict=True)):
    args = jnp.asarray(cohort), DATA, KEY(2)
    server, clients, _ = round_of(own)(server, clients, *args)
    total = versions[number]
    for client, late in zip(cohort, tau, strict=True):
      start = versions[number - late]
      # As the only one of a cohort it leaves its model; its key is of `number`.
      before = plain._replace(params=start, round=jnp.array(number))
      after = round_of(stage)(before, (), jnp.array([client]), *args[1:])[0]
      total = jax.tree.map(
        lambda w, a, b, s=(1 + late) ** -0.5: w + s * (a - b) / 2,
        total,
        after.params,
        start,
      )
    versions.append(total)
    assert_close(server.own.params, total)
  assert server.round == server.own.round == 3


@pytest.mark.parametrize(
  'name', ['scaffold', 'local_only', 'superfed', 'ifca', 'ditto']
)
def test_methods_without_such_an_upload_are_refused(name):
  """Of Ditto the released form, whose clients keep the server's clock."""
  hp = {'protocol': 'released'} if name == 'ditto' else {}
  message = refused(only_stage, build(name, **hp), DATA)
  assert 'buffer_size=0' in message
