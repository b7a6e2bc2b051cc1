"""What must not move the results of any method: how the engine runs it.

The order of the cohort, the chunk, the backend, and the padding, whatever it
points at; of each stage three rounds. The promise is 1e-6, relative. It is one
about the order of sums: with 64 bits, where `assert_close` asks for 1e-10. With
32 bits a step of this task multiplies the last bit, by up to 3e-5 in the end.

The cohort of these tests holds clients with less than a batch, with one
example, and with none. Rounds in one call, to the bit: determinism_test.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  ALGORITHMS,
  COHORT,
  COUNTS,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  every_method,
  make_data,
  make_task,
  pad,
  play,
  round_of,
)

from fedjax_pfl.algorithms import load
from fedjax_pfl.core import trees
from fedjax_pfl.federated.rounds import init_states

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
WIDE = pad(DATA, 2 * max(COUNTS), row=-1)  # padding shows the poisoned row


stages_of = functools.cache(build)


def play_three(name, data=DATA, **options):
  """Return server, clients, metrics after three rounds of each stage."""
  return play(stages_of(name), data, rounds=3, **options)


@functools.cache
def played(name):
  """Return those of the plain way to run: client after client."""
  return play_three(name, clients_per_chunk=1)


def assert_equal_but_padding(got, name):
  """Compare with `played`, but for what padding adds to the metrics."""
  server, clients, history = got
  want_server, want_clients, want_history = played(name)
  assert_close((server, clients), (want_server, want_clients))
  steps = want_history[0]['losses'].shape[1]  # the most of any client
  assert_close(
    without_tails(history, steps), without_tails(want_history, steps)
  )


def without_tails(history, steps):
  """Cut what follows a client's last step: it is as long as the padding."""
  for metrics in history:
    assert not metrics['losses'][:, steps:].any()
  return [
    {name: value for name, value in metrics.items() if value.ndim == 1}
    for metrics in history
  ]


@every_method(6, 2)
def test_cohort_order(name):
  order = np.array([3, 0, 4, 2, 1])
  cohort = tuple(np.array(COHORT)[order])
  server, clients, history = play_three(
    name, cohort=cohort, clients_per_chunk=1
  )
  assert_same_bits((server, clients), played(name)[:2])
  for got, want in zip(history, played(name)[2], strict=True):
    assert_same_bits(got, trees.gather(want, order))


@every_method(6, 5)
def test_chunk_and_twice_the_padding(name):
  """All side by side."""
  got = play_three(name, WIDE, clients_per_chunk=len(COHORT))
  assert got[2][0]['losses'].shape > played(name)[2][0]['losses'].shape
  assert_equal_but_padding(got, name)


@pytest.mark.long
@every_method()
def test_chunk_that_leaves_a_rest(name):
  """Two, two, and one."""
  assert_equal_but_padding(play_three(name, clients_per_chunk=2), name)


@every_method(9, 4)
def test_python_loop(name):
  # Every new operation compiles by itself there: few, then.
  train = TRAIN._replace(epochs=1, shuffle=False, weight_decay=0.0)
  stages = build(name, linear_task(), train=train)
  want = play(stages, DATA, rounds=1, cohort=(3, 2), clients_per_chunk=1)
  got = play(stages, DATA, rounds=1, cohort=(3, 2), backend='loop')
  assert_close(got, want)


def linear_task():
  def features(params, x, mask):
    return x.reshape(len(x), -1) @ params['body']['kernel']

  def logits(params, x, mask):
    return features(params, x, mask) @ params['head']['kernel']

  def loss(params, batch, key):
    return (batch.mask @ logits(params, batch.x, batch.mask)).sum()

  return make_task(noise=0)._replace(
    features=features, logits=logits, loss=loss
  )


@every_method(6, 2)
def test_twice_the_padding_of_personal_models(name):
  stages = stages_of(name)
  server, clients, _ = played(name)
  personalize = jax.jit(stages[-1].algorithm.personalize)
  for i in (5, 1, 2):  # two batches, one example, none
    client = trees.gather(clients, i)
    got = personalize(server, client, client_of(WIDE, i), KEY(3))
    want = personalize(server, client, client_of(DATA, i), KEY(3))
    assert_close(got, want)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(want))


@every_method(3)
def test_the_content_of_padding_changes_nothing(name):
  poisoned = pad(DATA, max(COUNTS), row=-1)
  assert (poisoned.index != DATA.index).any()
  got = play_three(name, poisoned, clients_per_chunk=1)
  assert_same_bits(got, played(name))


@every_method()
def test_results_are_finite(name):
  """Also of the client that has no example."""
  assert 2 in COHORT and COUNTS[2] == 0
  for leaf in jax.tree.leaves(played(name)):
    assert np.isfinite(leaf).all()


@pytest.mark.parametrize(
  'name', [m for m in ALGORITHMS if load(m).PRIVATE_LEAVES]
)
def test_private_part_of_the_server_keeps_its_bits(name):
  """What is declared private may be frozen, or live with the clients.

  Of the last stage alone: one before it may be another method's.
  """
  stage = stages_of(name)[-1]
  before = after = init_states(stage.algorithm, DATA, KEY(1))
  round_fn = round_of(stage, clients_per_chunk=1)
  for _ in range(2):
    *after, _ = round_fn(*after, jnp.array(COHORT), DATA, KEY(2))
  assert_same_bits(
    private_leaves(after[0], load(name).PRIVATE_LEAVES),
    private_leaves(before[0], load(name).PRIVATE_LEAVES),
  )
  moved = [
    (one != other).any()
    for one, other in zip(
      jax.tree.leaves(before), jax.tree.leaves(after), strict=True
    )
  ]
  assert sum(moved) > 1  # the clock is not alone


def private_leaves(server, private):
  paths = [f'/{path}/' for path in trees.leaf_names(server)]
  return {
    path: leaf
    for path, leaf in zip(paths, jax.tree.leaves(server), strict=True)
    if any(f'/{part}/' in path for part in private)
  }
