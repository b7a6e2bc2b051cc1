"""Compressed uploads: what arrives, what is remembered, what it weighs."""

from functools import partial

import jax
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
  long,
  make_data,
  normal,
  play,
  round_of,
  with_failures,
)
from on_the_host import play_both

from fedjax_pfl.around import compression, privacy
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.compression import Compression
from fedjax_pfl.around.failures import Failures
from fedjax_pfl.around.server_optimiser import ServerOptimiser
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import HAS_SENT, unchanged
from fedjax_pfl.federated.communication import messages, sizes_of
from fedjax_pfl.federated.rounds import begin, stage_shapes

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
HOW = {
  'qsgd': Compression('qsgd', levels=3),
  'topk': Compression('topk', share=0.1),
  'drive': Compression('drive'),
}
every_compressor = pytest.mark.parametrize('name', HOW)


def codec_of(name):
  return compression.CODECS[name](HOW[name])


# ---- one leaf


@pytest.mark.parametrize('name', ['qsgd', 'drive'])
def test_the_mean_over_keys_is_what_was_sent(name):
  """Of numbers in several buckets and blocks, the last ones padded."""
  codec, x = codec_of(name), jax.random.normal(KEY(1), (1300,))

  def arrived(key):
    return codec.decode(codec.encode(x, key), len(x))

  rows = jax.jit(jax.vmap(arrived))(jax.random.split(KEY(2), 2000))
  error, variance = rows.mean(0) - x, rows.var(0) / 2000
  assert abs(error).max() < 5 * variance.max() ** 0.5
  assert 0.8 < (error**2).mean() / variance.mean() < 1.2
  if name == 'drive':  # in the direction of x, exactly
    whole = x[:1024]
    np.testing.assert_allclose(rows[:, :1024] @ whole, whole @ whole)


def test_what_is_sent_and_what_is_left_is_what_changed():
  """After all rounds, to the bit: sums of whole numbers."""
  codec, left, sent = codec_of('topk'), jnp.zeros(50), jnp.zeros(50)
  changes = jax.random.randint(KEY(1), (6, 50), -99, 99).astype(float)
  for change in changes:
    arrived = codec.decode(codec.encode(change + left, KEY(0)), 50)
    assert jnp.count_nonzero(arrived) == 5
    left, sent = change + left - arrived, sent + arrived
    assert abs(left).max() <= abs(arrived[arrived != 0]).min()
  assert_same_bits(sent + left, changes.sum(0))


# float64: 8 bytes a number. 3 levels: 3 bits. 10 %: 130 places of 2 bytes.
SIZES = {'qsgd': 3 * 163 + 3 * 8, 'topk': 130 * 10, 'drive': 256 + 2 * 8 + 4}


@every_compressor
def test_real_bits_are_counted(name):
  """A leaf too small, and one of integers, go as they are."""
  codec = codec_of(name)
  tree = {'a': jnp.ones((13, 100)), 'b': jnp.ones(1), 'c': jnp.arange(99)}
  message = jax.jit(partial(compression.encode, codec))(tree, KEY(0))
  assert trees.num_bytes(message['a']) == SIZES[name]
  arrived = jax.eval_shape(partial(compression.decode, codec), message)
  assert jax.tree.map(jnp.shape, arrived) == jax.tree.map(jnp.shape, tree)
  assert_same_bits((message['b'], message['c']), (tree['b'], tree['c']))


# ---- around a method


def test_what_no_compressor_reads_goes_as_it_is():
  """SCAFFOLD's variates, of 43 numbers; the model is 20, 15, 5 and 3."""
  stages = around(build('scaffold'), Around(compression=HOW['qsgd']))
  ((stage, *states),) = stage_shapes(stages, DATA)
  model = (3 * 3 + 8) + (3 * 2 + 8) + (3 * 1 + 8) + (3 * 1 + 8)
  assert sizes_of(messages(stage, *states, DATA)).up == 43 * 8 + model


def test_a_stage_that_sends_no_model_goes_as_it_is():
  """FedDBE's clients first send the means of their features."""
  first = build('feddbe')[:1]
  want, *_ = play(first, DATA, rounds=1)
  got, *_ = play(around(first, Around(compression=HOW['qsgd'])), DATA, rounds=1)
  assert_close((*got[:-1],), (*want,))


def uniform(method, name, **more):
  """Return stages that may be private, with a server's optimiser."""
  stages = build(method, train=TRAIN._replace(aggregation='uniform'))
  adam = ServerOptimiser('adam', 0.1)
  how = Around(server_optimiser=adam, compression=HOW[name], **more)
  return around(stages, how)


@pytest.mark.parametrize(
  ('method', 'name'),
  [('fedper', 'topk'), long('fedavg', 'drive'), long('fedavg', 'qsgd')],
)
def test_all_wrappers_in_their_order(method, name):
  """Server's optimiser, compression, privacy.

  A clip that nothing reaches changes nothing, nor what is counted.
  """
  silent = privacy.Mechanism(clip=1e9, noise_multiplier=0.0, expected=4.0)
  plain = uniform(method, name)
  private = uniform(method, name, privacy=(silent,))
  sizes = [
    sizes_of(messages(*found, DATA))
    for kind in (plain, private)
    for found in stage_shapes(kind, DATA)
  ]
  assert sizes[0].up == sizes[1].up
  got, want = (
    play(kind, DATA, cohort=(4, 1, 0, 5)) for kind in (private, plain)
  )
  assert_close(got[0].params, want[0].params)
  assert_close(got[1], want[1])


@pytest.mark.long
def test_all_wrappers_on_the_host():
  """Of clients that have a state, and here a memory; failures, too."""
  loud = privacy.Mechanism(clip=0.1, noise_multiplier=1.0, expected=4.0)
  how = {'privacy': (loud,), 'failures': Failures(0.4, is_private=True)}
  assert_same_bits(*play_both(uniform('fedper', 'topk', **how)))


def test_fresh_memory_is_that_of_init_client():
  """Made block by block on the host: none of all clients on the device."""
  first, last = around(build('lg_fedavg'), Around(compression=HOW['topk']))
  assert first.initialize is unchanged and last.initialize is not unchanged
  _, clients = begin(first, DATA, KEY(1))
  memory = jax.tree.leaves(clients.memory)
  assert {len(leaf) for leaf in memory} == {len(DATA.count)}
  assert not any(leaf.any() for leaf in memory)


def test_memory_goes_on_in_a_stage_of_the_same_model():
  first, last = around(build('superfed'), Around(compression=HOW['topk']))
  states = begin(first, DATA, KEY(1))
  states = round_of(first)(*states, jnp.array(COHORT), DATA, KEY(3))[:2]
  kept = states[1].memory
  assert any(leaf.any() for leaf in jax.tree.leaves(kept))
  assert_same_bits(last.initialize(*states, DATA)[1].memory, kept)


def test_a_client_that_fails_keeps_its_memory():
  (stage,) = around(build('fedper'), Around(compression=HOW['topk']))
  server, clients = begin(stage, DATA, KEY(1))
  memory = jax.tree.map(lambda leaf: normal(*leaf.shape), clients.memory)
  clients = clients._replace(memory=memory)
  failing = round_of(with_failures(stage, 0.5))
  _, after, metrics = failing(server, clients, jnp.array(COHORT), DATA, KEY(3))
  failed = np.array(COHORT)[~np.array(metrics[HAS_SENT])]
  assert 0 < len(failed) < len(COHORT)
  assert_same_bits(trees.gather(after, failed), trees.gather(clients, failed))
  moved = trees.gather((after, clients), np.setdiff1d(COHORT, failed))
  left, before = (own.memory['body']['kernel'] for own in moved)
  assert left.any() and not jnp.array_equal(left, before)
