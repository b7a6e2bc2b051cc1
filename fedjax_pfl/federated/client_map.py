"""Run a function for every client: chunk by chunk, divided over devices.

The clients of a cohort are dealt to the devices of a mesh (dealing.py). Their
states are divided over the mesh as well, by id (placement.py): each device
fetches the states of the clients that it runs, and every owner gets back the
new ones (row_exchange.py).

What clients upload stays on the device that ran them. A sum over clients, in
what a method writes as its `aggregate`, is a sum on each device and then an
all-reduce: it depends on the number of devices by rounding, and moves a model,
not C of them.
"""

from collections.abc import Callable

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.federated import row_exchange
from fedjax_pfl.federated.dealing import Deal
from fedjax_pfl.federated.row_exchange import AXIS

# (shared, state, row) -> (state, upload, metrics) of one client
ClientFn = Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree, PyTree]]


def map_chunks(fn: Callable, rows: PyTree, chunk: int) -> PyTree:
  """Return fn of every row [C, ...], `chunk` rows at the same time.

  A chunk of one has no client axis: its loops stop where the client's own data
  end, and its products are not batched.
  """
  size = jax.tree.leaves(rows)[0].shape[0]
  if chunk >= size:
    return jax.vmap(fn)(rows)
  if chunk == 1:
    return lax.map(fn, rows)
  return lax.map(fn, rows, batch_size=chunk)


def map_on_mesh(
  fn: ClientFn,
  shared: PyTree,
  clients: PyTree,
  deal: Deal,
  rows: PyTree,
  chunk: int,
  mesh: Mesh,
) -> tuple[PyTree, PyTree, PyTree]:
  """Return (clients, uploads, metrics) of fn for the C clients of a deal.

  A state that fn returns as None stays as it was. `rows` is what a client has
  besides its state, for every place of the deal; `shared` is on all devices.
  Uploads [C, ...] are in the order of the deal and stay divided; metrics
  [C, ...] are in the order of the cohort, on all devices.
  """

  def run_share(shared, share, ids, own_ids, rows):
    if deal.at_home:
      places = row_exchange.own_places(share, own_ids)
      states = trees.gather(share, places)
    else:
      states = row_exchange.fetch(share, ids)
    fresh, uploads, metrics = _map_share(fn, shared, (states, rows), chunk)
    if fresh is None:
      metrics = row_exchange.to_all(metrics)
    elif deal.at_home:
      share = trees.scatter(share, places, fresh)
      metrics = row_exchange.to_all(metrics)
    else:  # one collective for both
      fresh, metrics = row_exchange.to_all((fresh, metrics))
      real = slice(deal.size)
      fresh = trees.gather(fresh, real)
      share = row_exchange.keep_own(share, ids[real], fresh)
    return share, uploads, metrics

  clients, uploads, metrics = jax.shard_map(
    run_share,
    mesh=mesh,
    in_specs=(Spec(), Spec(AXIS), Spec(), Spec(AXIS), Spec(AXIS)),
    out_specs=(Spec(AXIS), Spec(AXIS), Spec()),
    check_vma=False,  # the carry of a loop begins equal on all and then differs
  )(shared, clients, deal.ids, deal.ids, rows)
  divided = NamedSharding(mesh, Spec(AXIS))
  # The places without a client are the last ones, as those are by which the
  # compiler makes C divisible: to cut them off moves nothing.
  uploads = lax.with_sharding_constraint(
    trees.gather(uploads, slice(deal.size)), divided
  )
  return clients, uploads, trees.gather(metrics, deal.position)


def _map_share(fn, shared, rows, chunk):
  def run(row):
    return fn(shared, *row)

  if chunk == 1:  # no client axis even for a single row: the same bits
    return lax.map(run, rows)
  return map_chunks(run, rows, chunk)
