"""A round whose clients, and their states, are divided over a mesh.

states of the cohort -> the devices that train them      reduce-scatter [C]
new states, metrics -> their owners                      all-gather [C]
aggregate(server, uploads divided over devices)          one all-reduce
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Metrics, Server
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.client_map import (
  Deal,
  deal_at_home,
  deal_in_turn,
  map_on_mesh,
  num_places,
  pad_rows,
)
from fedjax_pfl.federated.cohort import (
  Cohort,
  all_send,
  client_update,
  server_update,
  work_of,
)
from fedjax_pfl.federated.failures import SERVER_FINITE, all_finite
from fedjax_pfl.federated.sharding import AXIS


def run_round(
  algorithm: Algorithm,
  chunk: int,
  mesh: Mesh,
  server: Server,
  clients: Client,
  ids: Array,
  data: ClientData,
  key: Key,
) -> tuple[Server, Client, Metrics]:
  """Return (server, clients, metrics) after a round of clients `ids` [C].

  Clients are divided as by `OnMesh` (placement.py), or whole arrays [K, ...],
  and come back in the same shape.
  """
  num_clients = data.count.shape[0]
  # Where all take part, no state has to move.
  everyone = jax.tree.leaves(clients) and ids.shape == data.count.shape
  deal_fn = deal_at_home if everyone else deal_in_turn
  *arrays, at_home = deal_fn(ids, data.count, mesh.size)
  # Computed on every device: to divide such short arrays would cost messages.
  deal = Deal(*_on_all(arrays, mesh), at_home)
  known = jnp.minimum(deal.ids, num_clients - 1)  # in places left over, too
  work = work_of(data, known)
  rows = Cohort((), data.index[known], deal.count, known, work)

  def update(shared, client, row):
    return client_update(algorithm, *shared)(row._replace(clients=client))

  divided, uploads, metrics = map_on_mesh(
    update,
    (server, data, key),
    pad_rows(clients, num_places(num_clients, mesh.size)),
    deal,
    rows,
    chunk,
    mesh,
  )
  real = deal.ids[: deal.size], deal.count[: deal.size]
  senders = all_send(*_on_all(real, mesh), data, mesh.size)
  server = server_update(algorithm, server, uploads, senders, data, key)
  if algorithm.respond is not None:
    own = trees.gather(divided, senders.ids)
    own = algorithm.respond(server, own, uploads, senders)
    divided = trees.scatter(divided, senders.ids, own)
  clients = jax.tree.map(
    lambda new, old: _divided(new[: len(old)], mesh), divided, clients
  )
  metrics[SERVER_FINITE] = all_finite(server)
  return _on_all(server, mesh), clients, metrics


def _on_all(tree: PyTree, mesh: Mesh) -> PyTree:
  return lax.with_sharding_constraint(tree, NamedSharding(mesh, Spec()))


def _divided(leaf: Array, mesh: Mesh) -> Array:
  """Return the rows divided over the mesh; on every device if that is uneven.

  No program returns an array that is divided into unlike parts.
  """
  spec = Spec() if leaf.shape[0] % mesh.size else Spec(AXIS)
  return lax.with_sharding_constraint(leaf, NamedSharding(mesh, spec))
