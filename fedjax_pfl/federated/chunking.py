"""How many clients run at the same time: the size of a chunk.

  clients_per_chunk = n   n clients
  'auto'                  as many as fit into free memory, at most the limit
                          that padding_overhead.py sets, where each kernel is
                          launched by itself (core/target.py); else 1

A launch takes as long for one client as for ten: on a GPU a step of one client
consists of little else. Where one program runs all operations, as on a TPU, or
one product fills all cores, as on a CPU, a client axis gains nothing, and what
one client works on stays in fast memory (docs/dev/performance_notes.md, "On
accelerators").

An 'auto' chunk that still runs out of memory is halved by oom_backoff.py.
"""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import launches_kernels, target_memory
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.cohort import client_update, gather
from fedjax_pfl.federated.padding_overhead import largest_chunk

MEMORY_SHARE = 0.8  # of the free memory of a device; the rest is fragmented


class DeviceMemory(NamedTuple):
  """Free memory of a device, and what one more client in a chunk takes."""

  free: int  # bytes
  per_client: int  # bytes

  def num_fitting(self, bytes_each: int) -> int:
    """Return how many things of this size fit; it may be 0."""
    return int(MEMORY_SHARE * self.free // bytes_each)


def check_clients_per_chunk(clients_per_chunk: int | str) -> None:
  """Raise BadInput if this is neither 'auto' nor a number of clients."""
  is_number = isinstance(clients_per_chunk, int) and clients_per_chunk >= 1
  if clients_per_chunk != 'auto' and not is_number:
    raise bad_input(
      'clients_per_chunk',
      got=clients_per_chunk,
      expected='"auto" or a whole number of clients, 1 or more',
      cause='a typing error',
    )


def chunk_limit(
  clients_per_chunk: int | str,
  counts: np.ndarray,
  cohort_size: int,
  batch_size: int,
) -> int:
  """Return the largest chunk of a round, before memory is looked at.

  `counts` [K] are the examples of all clients. The limit of 'auto' keeps the
  padding overhead low.
  """
  if clients_per_chunk != 'auto':
    return clients_per_chunk
  if not launches_kernels():
    return 1
  return largest_chunk(counts, cohort_size, batch_size)


def chunk_size(
  clients_per_chunk: int | str,
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  cohort: Array,
  data: ClientData,
  key: Key,
  *,
  limit: int | None = None,
) -> int:
  """Return how many clients of a cohort run at the same time.

  `limit` is that of `chunk_limit`. Of the arguments of the round only the
  shapes matter.
  """
  most = cohort.shape[0]
  if clients_per_chunk != 'auto':
    return min(clients_per_chunk, most)
  if not launches_kernels():
    return 1
  most = most if limit is None else min(most, limit)
  memory = device_memory(algorithm, server, clients, cohort, data, key)
  if memory is None:
    return most
  return int(np.clip(memory.num_fitting(memory.per_client), 1, most))


def evaluation_chunk(clients_per_chunk: int | str, block: int) -> int:
  """Return how many clients of a block are evaluated at the same time.

  With 'auto' all of a block, if a device gains from several: as many as a
  round holds.
  """
  if not launches_kernels():
    return 1
  return block if clients_per_chunk == 'auto' else min(clients_per_chunk, block)


def device_memory(
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  cohort: Array,
  data: ClientData,
  key: Key,
) -> DeviceMemory | None:
  """Return free memory, and what the compiler says that one client needs.

  None where nothing is run side by side, and where the device does not report
  its memory. Only the shapes of the arguments matter.
  """
  free = _free_memory((server, clients, data))
  if not launches_kernels() or free is None:
    return None
  program = client_program(algorithm, server, clients, cohort, data, key)
  memory = program.compile().memory_analysis()
  need = memory.temp_size_in_bytes + memory.output_size_in_bytes
  return DeviceMemory(free, max(need, 1))


def _free_memory(resident: PyTree) -> int | None:
  """Return the free bytes of the device; `resident` lies on one not there."""
  if (memory := target_memory()) is not None:
    return max(memory - trees.num_bytes(resident), 0)
  stats = jax.local_devices()[0].memory_stats() or {}
  if 'bytes_limit' not in stats:
    return None
  return stats['bytes_limit'] - stats.get('bytes_in_use', 0)


def shapes_of(tree: PyTree) -> PyTree:
  """Return the tree with the shapes of its arrays as leaves.

  Leaves that are shapes stay: theirs may name the device to compile for.
  """

  def shape_of(leaf):
    if isinstance(leaf, jax.ShapeDtypeStruct):
      return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

  return jax.tree.map(shape_of, tree)


def client_program(algorithm: Algorithm, *args: PyTree) -> jax.stages.Lowered:
  """Return the program of one client in a round, not yet compiled.

  `args` are (server, clients, cohort, data, key); the program returns the
  client, its upload and its metrics.
  """
  return _first_client.lower(algorithm, *shapes_of(args))


@partial(jax.jit, static_argnums=0)
def _first_client(algorithm, server, clients, cohort, data, key):
  row = trees.gather(gather(clients, cohort, data), 0)
  return client_update(algorithm, server, data, key)(row)
