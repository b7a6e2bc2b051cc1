"""Host offload: results are those of clients on the device."""

import weakref

import jax.numpy as jnp
import numpy as np
import pytest
from counting_method import counting
from helpers import ALGORITHMS, KEY, assert_same_bits, build
from on_the_host import DATA, play_both

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated import host_offload, rounds
from fedjax_pfl.federated.cohort import gather


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
  compiled = (
    host_offload.compile_round(algorithm, None, 1)
    .lower(
      *((num_clients, DATA.index.shape[1]), server),
      *(gather(clients, ids, DATA), ids, DATA.x, DATA.y, KEY(2)),
    )
    .compile()
  )
  memory = compiled.memory_analysis()
  return memory.argument_size_in_bytes, memory.temp_size_in_bytes


def test_device_memory_does_not_grow_with_registered_clients():
  assert sizes(100) == sizes(100_000)


def test_what_the_server_reads_is_moved_once():
  """As long as the labels are the same: others never have their id."""
  method = counting()._replace(server_rows=np.arange)
  of_server, moved = host_offload.server_data_fn(method), []
  for number in range(2):
    data = DATA._replace(x=np.zeros((3, 1)), y=np.full(3, number))
    moved.append(of_server(data))
    assert moved[-1].y.tolist() == [number] * 3
    assert of_server(data) is moved[-1]
  labels = weakref.ref(data.y)
  del data
  assert labels() is not None
