"""How many clients run at the same time: the size of a chunk.

  clients_per_chunk = n   n clients
  'auto'                  as many as fit into free memory, where each kernel is
                          launched by itself (core/target.py); else 1; also 1
                          if a step of one client fills the device

A launch takes as long for one client as for ten. Where one program runs all
operations, as on a TPU, or one product fills all cores, as on a CPU, a client
axis gains nothing (docs/dev/accelerators.md, "Clients side by side").

A chunk runs as many steps as its longest client has. The cohort is sorted by
size, so that a chunk holds clients of about one size, and an 'auto' chunk is
never so large that the others wait for more than MAX_OVERHEAD of all steps:

  overhead = 1 - sum_i s_i / sum over chunks of (clients x longest s)

One that runs out of memory all the same, which may be fragmented, is halved.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Server
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.rules import auto_or_count
from fedjax_pfl.core.target import (
  card,
  compiler_options,
  launches_kernels,
  target_memory,
)
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.cohort import client_update, gather
from fedjax_pfl.federated.model_axis import divide, groups
from fedjax_pfl.federated.sharding import AXIS, num_places
from fedjax_pfl.federated.step_work import Work, work_of

MEMORY_SHARE = 0.8  # of the free memory of a device; the rest is fragmented
MAX_OVERHEAD = 0.1  # of all steps, for an 'auto' chunk
NUM_COHORTS = 20  # drawn for the expected overhead
CHUNKS = auto_or_count('clients')


def map_chunks(fn: Callable, rows: PyTree, chunk: int) -> PyTree:
  """Return fn of every row [C, ...], `chunk` rows at the same time.

  A chunk of one has no client axis: its loops stop where the client's own data
  end, and its products are not batched. Groups of devices (model_axis.py) have
  a share of the rows each.
  """
  size = jax.tree.leaves(rows)[0].shape[0]
  if (number := groups()) > 1:
    places = np.arange(num_places(size, number)).reshape(number, -1)
    rows = trees.gather(rows, np.minimum(places, size - 1))  # [G, C / G, ...]
    run = lambda share: _map_share(lambda row: fn(divide(row)), share, chunk)
    results = jax.vmap(run, spmd_axis_name=AXIS)(rows)
    joined = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size]
    return jax.tree.map(joined, results)
  return _map_share(fn, rows, chunk)


def _map_share(fn, rows, chunk):
  if chunk == 1:
    return lax.map(fn, rows)
  if chunk >= jax.tree.leaves(rows)[0].shape[0]:
    return jax.vmap(fn)(rows)
  return lax.map(fn, rows, batch_size=chunk)


def chunk_limit(
  clients_per_chunk: int | str,
  counts: np.ndarray,
  cohort_size: int,
  batch_size: int,
) -> int:
  """Return the largest chunk of a round, before memory is looked at."""
  if clients_per_chunk != 'auto':
    return clients_per_chunk
  if not launches_kernels():
    return 1
  for chunk in range(cohort_size, 1, -1):
    share = expected_overhead(counts, cohort_size, chunk, batch_size)
    if share < MAX_OVERHEAD:
      return chunk
  return 1


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
  work = client_work(algorithm, server, clients, cohort, data, key)
  if work.flops > card().full_step:
    return 1
  free = free_memory((server, clients, data))
  if free is None or most * work.activations < free / 2:
    return most  # nothing is compiled; what does not fit is halved
  need = client_bytes(algorithm, server, clients, cohort, data, key)
  return int(np.clip(MEMORY_SHARE * free // need, 1, most))


def evaluation_chunk(clients_per_chunk: int | str, block: int) -> int:
  """Return how many clients of a block are evaluated at the same time."""
  if not launches_kernels():
    return 1
  return block if clients_per_chunk == 'auto' else min(clients_per_chunk, block)


def overhead(counts: np.ndarray, chunk: int, batch_size: int) -> float:
  """Return the padding overhead of a cohort with so many examples [C]."""
  steps = np.sort(-(-np.asarray(counts) // batch_size))
  chunks = np.split(steps, range(chunk, len(steps), chunk))
  run = sum(len(members) * int(members[-1]) for members in chunks)
  return 1 - int(steps.sum()) / run if run else 0.0


def expected_overhead(
  counts: np.ndarray, cohort_size: int, chunk: int, batch_size: int
) -> float:
  """Return the mean overhead of random cohorts of clients [K]."""
  counts, rng = np.asarray(counts), np.random.default_rng(0)
  cohorts = [counts]
  if cohort_size < len(counts):
    draw = lambda: rng.choice(counts, cohort_size, replace=False)
    cohorts = [draw() for _ in range(NUM_COHORTS)]
  shares = [overhead(cohort, chunk, batch_size) for cohort in cohorts]
  return float(np.mean(shares))


def free_memory(resident: PyTree) -> int | None:
  """Return the free bytes of a device, or None if it does not report them.

  `resident` lies on a device that is compiled for but is not there.
  """
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

  is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
  shape_of = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
  keep = lambda leaf: leaf if is_shape(leaf) else shape_of(leaf)
  return jax.tree.map(keep, tree)


def client_work(algorithm: Algorithm, *args: PyTree) -> Work:
  """Return what one client of a round computes, from its jaxpr."""
  return work_of(_first_client.trace(algorithm, *shapes_of(args)).jaxpr.jaxpr)


def client_bytes(algorithm: Algorithm, *args: PyTree) -> int:
  """Return what the compiler says that one more client in a chunk takes."""
  program = _first_client.lower(algorithm, *shapes_of(args))
  compiled = program.compile(compiler_options=compiler_options(runs=False))
  memory = compiled.memory_analysis()
  return max(memory.temp_size_in_bytes + memory.output_size_in_bytes, 1)


def first_client(algorithm, server, clients, cohort, data, key):
  """Return (client, upload, metrics) of the first client of a cohort."""
  row = trees.gather(gather(clients, cohort, data), 0)
  return client_update(algorithm, server, data, key)(row)


_first_client = jax.jit(first_client, static_argnums=0)


def with_oom_backoff(
  make_fn: Callable[[int], Callable],
  clients_per_chunk: int | str,
  choose_fn: Callable[..., int],
  log: Callable[[str], None] = lambda text: None,
) -> Callable:
  """Return make_fn(chunk) as a function, with a chunk that fits into memory.

  The chunk of 'auto' is choose_fn(*args) of the first call, halved as long as
  memory does not hold it: the arguments of a round are not donated, so it can
  be run once more. A number is not changed: BadInput is raised.
  """
  chosen = []  # [chunk, function, whether a call has succeeded]

  def call(*args):
    if not chosen:
      is_auto = clients_per_chunk == 'auto'
      first = choose_fn(*args) if is_auto else clients_per_chunk
      chosen[:] = first, make_fn(first), False
    chunk, function, fits = chosen
    if fits or trees.is_traced(args):
      return function(*args)
    try:
      # Execution is asynchronous: without waiting, an accelerator's allocator
      # fails after this block.
      result = jax.block_until_ready(function(*args))
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      if clients_per_chunk != 'auto' or chunk == 1:
        raise _too_large(chunk, error) from error
      chosen[:] = chunk // 2, make_fn(chunk // 2), False
      log(
        f'{chunk} clients at a time run out of memory: going on with '
        f'{chunk // 2}. The results are the same.'
      )
      return call(*args)
    chosen[2] = True
    return result

  return call


def _too_large(chunk: int, error: Exception) -> BadInput:
  fewer = ['clients_per_chunk=auto', f'clients_per_chunk={chunk // 2}']
  choices = ['a smaller batch_size', 'a smaller model']
  return bad_input(
    'clients_per_chunk',
    got=chunk,
    expected='as many clients at a time as fit into memory',
    choices=[*fewer * (chunk > 1), *choices, 'clients_placement=host'],
    cause=str(error).splitlines()[0][:120],
  )
