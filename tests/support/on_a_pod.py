"""Compile rounds for a mesh from shapes alone: what they move and hold.

Called by simulated_devices.py: see there.
"""

import itertools

import helpers
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from experiments.accelerators.compilation import collectives
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.federated.sharding import AXIS, make_mesh, num_places

EXAMPLES = 4


def shapes(*sizes, dtype=jnp.int32):
  return jax.ShapeDtypeStruct(sizes, dtype)


def data_of(num_clients):
  pool = num_clients * EXAMPLES
  return ClientData(
    shapes(pool, *helpers.SHAPE, dtype=jnp.uint8),
    shapes(pool),
    shapes(num_clients, EXAMPLES),
    shapes(num_clients),
  )


def on(mesh, spec, tree):
  where = NamedSharding(mesh, spec)
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
    tree,
  )


def measure(stages, data, cohort):
  """Return what a round of the first stage moves, and its memory."""
  mesh = make_mesh()
  stage, server, clients = next(stage_shapes(stages, data))
  key = jax.eval_shape(jax.random.key, 0)
  places = num_places(data.count.shape[0], mesh.size)
  clients = jax.tree.map(
    lambda leaf: shapes(places, *leaf.shape[1:], dtype=leaf.dtype), clients
  )
  server, ids, data, key = on(mesh, Spec(), (server, shapes(cohort), data, key))
  clients = on(mesh, Spec(AXIS), clients)
  round_fn = make_round(stage.algorithm, clients_per_chunk=1, mesh=mesh)
  program = jax.jit(round_fn).lower(server, clients, ids, data, key).compile()
  memory = program.memory_analysis()
  return {
    'moved': sorted(itertools.chain(*collectives(program.as_text()))),
    'states': trees.num_bytes(clients),
    'server': trees.num_bytes(server),
    'data': trees.num_bytes(data),
    'arguments': memory.argument_size_in_bytes,
    'results': memory.output_size_in_bytes,
    'temporary': memory.temp_size_in_bytes,
  }


def found(*words):
  """Return {word: what a round moves and holds}.

  A word is a method, the clients of a cohort, those that are registered, and
  how many features the model has.
  """
  table = {}
  for word in words:
    name, *numbers = word.split(',')
    cohort, num_clients, hidden = map(int, numbers)
    stages = helpers.build(name, helpers.make_task(hidden))
    table[word] = measure(stages, data_of(num_clients), cohort)
  return table
