"""How many clients run side by side, and what memory that takes."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Server
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.cohort import client_update, gather

MEMORY_SHARE = 0.8  # of what an accelerator says it has; the rest fragments


def map_clients(fn: Callable, rows: PyTree, chunk: int) -> PyTree:
  """Return fn of every row [C, ...], `chunk` rows side by side.

  A chunk of one has no client axis at all: its loops stop where the client's
  own data end, and its products are plain ones.
  """
  size = jax.tree.leaves(rows)[0].shape[0]
  if chunk >= size:
    return jax.vmap(fn)(rows)
  if chunk == 1:
    return lax.map(fn, rows)
  return lax.map(fn, rows, batch_size=chunk)


class Memory(NamedTuple):
  """What an accelerator has, and what clients side by side take, in bytes."""

  free: int
  client: int  # that the program of one client needs


def auto_chunk(
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  cohort: Array,
  data: ClientData,
  key: Key,
) -> int:
  """Return how many clients of the cohort should run side by side.

  On a CPU one: a product fills all cores, and side by side the same work
  takes longer (BUILD.md, "Speed"). On an accelerator as many as fit. Only the
  shapes of the arguments matter.
  """
  if jax.default_backend() == 'cpu':
    return 1
  memory = memory_of(algorithm, server, clients, cohort, data, key)
  if memory is None:
    return cohort.shape[0]
  fitting = MEMORY_SHARE * memory.free // memory.client
  return int(np.clip(fitting, 1, cohort.shape[0]))


def memory_of(
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  cohort: Array,
  data: ClientData,
  key: Key,
) -> Memory | None:
  """Return the free memory, and what the compiler says that a client needs.

  None where the device does not say what it has, as a CPU. Only the shapes of
  the arguments matter.
  """
  stats = jax.local_devices()[0].memory_stats() or {}
  if jax.default_backend() == 'cpu' or 'bytes_limit' not in stats:
    return None
  program = client_program(algorithm, server, clients, cohort, data, key)
  memory = program.compile().memory_analysis()
  need = memory.temp_size_in_bytes + memory.output_size_in_bytes
  free = stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return Memory(free, max(need, 1))


def shapes_of(tree: PyTree) -> PyTree:
  """Return the tree with shapes in the place of its arrays."""
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree
  )


def client_program(algorithm: Algorithm, *args: PyTree) -> jax.stages.Lowered:
  """Return the program of one client in a round with these arguments.

  Its results are the client, its upload and its metrics. To be compiled.
  """
  return _first_client.lower(algorithm, *shapes_of(args))


@partial(jax.jit, static_argnums=0)
def _first_client(algorithm, server, clients, cohort, data, key):
  one = trees.gather(gather(clients, cohort, data), 0)
  return client_update(algorithm, server, data, key)(one)
