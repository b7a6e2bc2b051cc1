"""Clients that fail send nothing: against a plain Python loop without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_method import counting, start
from helpers import (
  COHORT,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  every_method,
  make_data,
  normal,
  round_of,
  with_failures,
)

from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import FINITE, HAS_SENT, SERVER_FINITE, Stage
from fedjax_pfl.federated.rounds import begin, make_round

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA, RATE = make_data(), 0.5
DIVERGING, LATE = COHORT[0], COHORT[3]
UNIFORM = TRAIN._replace(aggregation='uniform')  # a_i = 1, or n_i


def sent_by_hand(key, number, ids, rate=RATE):
  """Return which of these clients send in this round."""
  round_key = jax.random.fold_in(key, number)
  keys = [jax.random.fold_in(round_key, client) for client in ids]
  keys = [jax.random.fold_in(of_client, 2**31 - 1) for of_client in keys]
  return [bool(jax.random.uniform(draw) >= rate) for draw in keys]


def key_by(holds):
  """Return the first key for which holds(key)."""
  return next(KEY(seed) for seed in range(100) if holds(KEY(seed)))


def spoiled(stage, client):
  """Return the stage in which the state and the upload of a client are NaN."""
  update, first = stage.algorithm.local_update, DATA.index[client, 0]

  def local_update(down, state, data, rng):
    *sent, metrics = update(down, state, data, rng)
    factor = jnp.where(data.index[0] == first, jnp.nan, 1.0)

    def spoil(leaf):
      is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
      return factor * leaf if is_float else leaf

    return *jax.tree.map(spoil, sent), metrics

  return replaced(stage, local_update=local_update)


@every_method(1)
def test_every_method_ends_as_if_they_had_not_been_drawn(name):
  """Who fails, one who sends and diverges, and one who has no time."""
  stages = build(name, train=UNIFORM)
  states, cohort = begin(stages[0], DATA, KEY(1)), jnp.array(COHORT)
  for number, stage in enumerate(stages):
    if number:
      states = stage.initialize(*states, DATA)
    prepared = stage.prepare_data(states[0], DATA)
    if stage.full_participation:
      everyone = jnp.arange(len(DATA.count))
      *states, _ = round_of(stage)(*states, everyone, prepared, KEY(2))
      continue
    clock = int(states[0].round)
    key = key_by(lambda key, n=clock: 2 < sum(sent_by_hand(key, n, COHORT)) < 5)
    sent = np.array(sent_by_hand(key, clock, COHORT))
    is_left = sent & (np.array(COHORT) != DIVERGING)
    assert is_left.sum() == sent.sum() - 1
    is_left &= np.array(COHORT) != LATE
    how = {'on_divergence': 'exclude', 'has_deadline': True}
    failing = with_failures(spoiled(stage, DIVERGING), RATE, **how)
    work = jnp.where(jnp.arange(len(DATA.count)) == LATE, 0.0, 1.0)
    timed = prepared._replace(work=work)
    *got, metrics = round_of(failing)(*states, cohort, timed, key)
    *want, _ = round_of(stage)(*states, cohort[is_left], prepared, key)
    assert metrics[HAS_SENT].tolist() == is_left.tolist()
    assert_close(tuple(got), tuple(want))
    states = want


def counting_with(change):
  """Return the counting method with (state, up, metrics) -> those, by data."""
  method = counting()

  def local_update(down, state, data, rng):
    return change(data, *method.local_update(down, state, data, rng))

  return Stage('counting', 3, method._replace(local_update=local_update))


def timed(data, state, up, metrics):
  """Plan five steps."""
  return state, up, {**metrics, 'num_steps': jnp.floor(5 * data.work)}


def test_who_fails_or_is_late_depends_on_the_client_alone():
  """Not on the order of the cohort, on others, on chunks or on the loop."""
  stage = with_failures(counting_with(timed), RATE, has_deadline=True)
  server, clients = start()
  order = np.array(COHORT)
  key = key_by(lambda key: 2 < sum(sent_by_hand(key, 0, COHORT)) < 5)
  want, names = dict(zip(COHORT, sent_by_hand(key, 0, COHORT), strict=True)), []
  late, *_, slow = [client for client, sends in want.items() if sends]
  want[late] = False
  work = np.ones(len(DATA.count), np.float32)
  work[[late, slow]] = 0.1, 0.3
  data = DATA._replace(work=jnp.asarray(work))
  for ids, options in (
    (order, {'clients_per_chunk': 1}),
    (order[::-1], {'clients_per_chunk': 2}),
  ):
    round_fn = make_round(stage.algorithm, **options)
    after, rows, metrics = round_fn(server, clients, jnp.array(ids), data, key)
    sent = metrics[HAS_SENT].tolist()
    assert sent == [want[client] for client in ids.tolist()]
    names.append(sent)
    total = sum(int(DATA.count[client]) for client in ids if want[int(client)])
    assert float(after.total - server.total) == pytest.approx(total)
    visited = np.zeros(len(DATA.count), int)
    visited[ids[np.array(sent)]] = 1
    assert rows.visits.tolist() == visited.tolist()
    others = np.flatnonzero(visited == 0)
    assert_same_bits(trees.gather(rows, others), trees.gather(clients, others))
  assert len({tuple(sorted(sent)) for sent in names[:2]}) == 1


def diverging(client, part):
  """Return a method of which one client has an infinite part."""

  def change(data, state, up, metrics):
    bad = jnp.where(data.count == DATA.count[client], jnp.inf, 0.0)
    if part == 'loss':
      metrics = {**metrics, 'loss': metrics['loss'] + bad}
    elif part == 'state':
      state = state._replace(last=state.last + bad)
    else:
      up = up + bad
    return state, up, metrics

  return counting_with(change)


@pytest.mark.parametrize('part', ['loss', 'state', 'upload'])
def test_a_client_that_diverges_is_seen_and_excluded(part):
  """As if it had not been drawn; without exclusion the round is as it was."""
  stage, (server, clients) = diverging(COHORT[2], part), start()
  cohort, others = jnp.array(COHORT), np.delete(np.array(COHORT), 2)
  want = [client != COHORT[2] for client in COHORT]
  for excludes, then in ((False, 'stop'), (True, 'exclude')):
    seen = with_failures(stage, on_divergence=then).algorithm
    got, rows, metrics = make_round(seen)(server, clients, cohort, DATA, KEY(2))
    assert {FINITE, HAS_SENT} & {*metrics} == {*[FINITE, HAS_SENT] * excludes}
    assert metrics[SERVER_FINITE] == (excludes or part != 'upload')
  assert metrics[FINITE].tolist() == metrics[HAS_SENT].tolist() == want
  round_fn = make_round(stage.algorithm)
  *without, _ = round_fn(server, clients, jnp.array(others), DATA, KEY(2))
  assert_close((got, rows), tuple(without))


@every_method(1, ['pfedme', 'scaffold', 'fedconcat'])
def test_a_round_in_which_all_fail_only_moves_the_clock(name):
  """Twice: what the server summed up before is not applied again."""
  (stage, *_) = build(name, train=UNIFORM)
  before = jax.tree.map(  # as after some rounds: no sum is zero
    lambda leaf: normal(*leaf.shape) if leaf.dtype == 'float32' else leaf,
    begin(stage, DATA, KEY(1)),
  )
  cohort = jnp.array(COHORT)
  round_fn = round_of(with_failures(stage, 1 - 1e-6))
  for _ in range(2):
    *after, metrics = round_fn(*before, cohort, DATA, KEY(2))
    assert not metrics[HAS_SENT].any()
    assert after[0].round == before[0].round + 1
    assert_same_bits(after[0]._replace(round=before[0].round), before[0])
    assert_same_bits(after[1], before[1])
    before = after
