"""Host offload: results are those of clients on the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_method import counting
from helpers import ALGORITHMS, KEY, assert_same_bits, build, make_data

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated import host_offload, rounds
from fedjax_pfl.federated.cohort import gather
from fedjax_pfl.federated.placement import OneDevice, OnHost

DATA = make_data()
# Clients are in one round after the other, in every other one, and in none.
COHORTS = np.array([(4, 1, 2, 0), (1, 4, 3, 0), (2, 4, 0, 3)])


def on_host(data: ClientData) -> ClientData:
  return data._replace(index=np.array(data.index), count=np.array(data.count))


def play(stages, data, begin, initialize, make_rounds):
  """Return the states and the metrics after the rounds of each stage."""
  states, history = begin(stages[0], data, KEY(1)), []
  for number, stage in enumerate(stages):
    if number:
      states = initialize(stage, *states, data)
    prepared = stage.prepare_data(states[0], data)
    cohorts = jnp.asarray(COHORTS)
    if stage.full_participation:
      cohorts = jnp.tile(jnp.arange(len(data.count)), (2, 1))
    rounds_fn = make_rounds(stage.algorithm)
    *states, metrics = rounds_fn(*states, cohorts, prepared, KEY(2))
    history.append(metrics)
  return *states, history


def play_both(stages):
  """Return the results of rounds with rows on the host, and on the device."""
  got = play(
    *(stages, on_host(DATA), OnHost().begin, OnHost().initialize),
    lambda algorithm: host_offload.make_host_rounds(algorithm, 1),
  )
  want = play(
    *(stages, DATA, rounds.begin, OneDevice().initialize),
    lambda algorithm: rounds.make_rounds(
      rounds.make_round(algorithm, clients_per_chunk=1)
    ),
  )
  assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(got[1]))
  return got, want


def test_a_client_continues_from_its_last_state():
  """In the next round, in a later one, or in a later stage."""
  stages = (
    Stage('one', 3, counting()),
    Stage(
      *('two', 3, counting()),
      lambda server, clients, data: (
        server,
        clients._replace(visits=2 * clients.visits + data.count),
      ),
    ),
  )
  got, want = play_both(stages)
  assert_same_bits(got, want)


@pytest.mark.long
@pytest.mark.parametrize('name', ALGORITHMS)
def test_the_bits_are_those_of_rows_on_the_device(name):
  assert_same_bits(*play_both(build(name)))


def sizes(num_clients):
  """Return the bytes of a compiled round: arguments and temporaries."""
  algorithm, ids = counting(), jnp.arange(3)
  server, clients = rounds.init_states(algorithm, DATA, KEY(1))
  compiled = host_offload.compiled_round.lower(
    *(algorithm, 1, (num_clients, DATA.index.shape[1]), server),
    *(gather(clients, ids, DATA), ids, DATA.x, DATA.y, KEY(2)),
  ).compile()
  memory = compiled.memory_analysis()
  return memory.argument_size_in_bytes, memory.temp_size_in_bytes


def test_device_memory_does_not_grow_with_registered_clients():
  assert sizes(100) == sizes(100_000)


def test_a_server_that_reads_the_rows_of_all_clients():
  def post_aggregate(server, data, key):
    return server._replace(total=data.count[jnp.argmax(server.total)])

  stage = Stage(
    'reads_all', 3, counting()._replace(post_aggregate=post_aggregate)
  )
  with pytest.raises(BadInput, match=r'clients_placement: got .host.') as error:
    host_offload.check_stages((stage,), on_host(DATA))
  assert 'Choices: device' in str(error.value)
  assert 'stage reads_all' in str(error.value)
  host_offload.check_stages(
    build('scaffold'), on_host(DATA)
  )  # reads their number only
