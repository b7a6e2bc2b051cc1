"""CFL (Sattler et al. 2020): a cluster at rest is split in two.

  w_i <- SGD_tau(w_k; data of client i)     i in the cohort S, k its cluster
  d_i  = w_i - w_k,      s_ij = cos(d_i, d_j)
  split S_k into A, B if  |mean_i d_i| < eps1,  max_i |d_i| > eps2
                     and  sqrt((1 - max_{i in A, j in B} s_ij) / 2) > gamma
  w_k <- sum_{i in S_k} a_i w_i / sum_{i in S_k} a_i       a_i = 1 or n_i

S_k are the clients of S in cluster k: in the last line after the splits of the
round. The mean of d_i has weights a_i. A and B are the halves of S_k with the
least max s_ij: the groups of the most similar pair become one, until two are
left. Only three clients or more are split. All begin in one cluster; there are
at most `clusters`. The metric `cluster` is k before the round.

Clients of a cluster that are not in S stay with the half of the larger sum of
a_i. A later split of their cluster may divide them.

protocol 'released': the authors' code. The two groups whose least s_ij is
largest become one (complete linkage, so A and B may be others), and there is no
gamma.

New client: it takes the cluster whose model has the least loss on its training
data.

Differs from the paper: there all clients take part in every round, the mean of
d_i has weights n_i, and the number of clusters has no bound. A new client of
the paper goes down the tree of splits, by updates that the server keeps. The
authors' notebook splits from round 21 on, and from the second split on takes
positions in the cluster for numbers of clients; momentum goes on there from
round to round, and the rate is 0.99 times that of the round before.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model, own_examples
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task, matmul


class HParams(global_model.HParams):
  eps1: float = field(0.4, rules.at_least(0), traced=True)
  eps2: float = field(1.6, rules.at_least(0), traced=True)
  gamma: float = field(0.0, rules.share(), traced=True)
  clusters: int = field(  # at most; 1 is FedAvg
    8, rules.count('clusters', 'a share of clients')
  )
  protocol: str = field('paper', rules.protocol())  # or 'released'


PARTS = {'gamma': ('protocol', 'paper')}
FAMILY, PAPER = 'clusters', 'arxiv.org/abs/1910.01991'
FEDAVG_EQUIVALENT = {'clusters': 1}
PRIVATE_LEAVES = ()
NORM_STATISTICS = ('batch', 'running')  # a new client has none to compare by


class Server(NamedTuple):
  round: Array
  params: Params  # [M, ...] of the clusters; w_0 where there is none yet
  cluster: Array  # [K]


class Client(NamedTuple):
  cluster: Array  # []


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of CFL."""

  def init_server(rng):
    models = trees.repeated(task.init(rng), hp.clusters)
    return Server(jnp.zeros((), jnp.int32), models, jnp.zeros(1, int))

  def initialize(server, clients, data):
    # K is known from here on.
    return server._replace(cluster=jnp.zeros(len(data.count), int)), clients

  def init_client(server, data, rng):
    def nearest():
      size = hp.train.batch_size
      values = own_examples.mean_losses(task, server.params, data, rng, size)
      is_there = jnp.arange(hp.clusters) <= jnp.max(server.cluster)
      return jnp.argmin(jnp.where(is_there, values, jnp.inf))

    is_first = server.round == 0
    return Client(lax.cond(is_first, lambda: jnp.zeros((), int), nearest))

  def model(server, client):
    return trees.gather(server.params, client.cluster)

  def local_update(down, client, data, rng):
    params, info = hp.train.fit(task, down.params, data, rng, down.round)
    return client, params, {**info.metrics(), 'cluster': client.cluster}

  def aggregate(server, up, senders):
    cluster = server.cluster[senders.ids]  # [C]
    weights = senders.masked(hp.train.weights(senders.counts))
    moved = jax.tree.map(jnp.subtract, up, trees.gather(server.params, cluster))
    products = trees.products(norm_stats.learned(moved))
    last = jnp.max(server.cluster)
    new, parent = split(products, cluster, weights, last, hp)
    begun = trees.gather(server.params, parent)
    params = senders.segment_mean(up, weights, new, begun)
    everyone = server.cluster.at[senders.ids].set(new)
    return Server(server.round + 1, params, everyone)

  algorithm = global_model.federated_averaging(task, hp, local_update, model)
  algorithm = algorithm._replace(
    init_server=init_server,
    init_client=init_client,
    aggregate=aggregate,
    respond=lambda server, clients, up, senders: Client(
      server.cluster[senders.ids]
    ),
  )
  return (Stage('cfl', hp.train.rounds, algorithm, initialize),)


# ---- Splits ------------------------------------------------------------------


def split(
  products: Array, cluster: Array, weights: Array, last: Array, hp: HParams
) -> tuple[Array, Array]:
  """Return the clusters [C] after this round, and the parent [M] of each.

  products: <d_i, d_j> [C, C] of clients of these clusters [C]; weights 0: not
    there.
  last: the largest number of a cluster so far.
  """
  sizes = jnp.sqrt(jnp.diag(products))
  likeness = products / (sizes[:, None] * sizes + 1e-12)
  is_there = weights > 0
  numbers = jnp.arange(hp.clusters)
  of_cluster = is_there & (cluster == numbers[:, None])  # [M, C]
  share = weights * of_cluster
  share = share / jnp.maximum(share.sum(1, keepdims=True), 1e-30)
  means = jnp.sqrt(jnp.maximum(jnp.sum(share * matmul(share, products), 1), 0))
  largest = jnp.max(jnp.where(of_cluster, sizes, 0), 1)
  is_pair = is_there & is_there[:, None] & (cluster == cluster[:, None])
  first = halves(likeness, is_pair, hp.protocol == 'released')  # [C]
  heavier = matmul(share, first.astype(share.dtype)) >= 0.5  # [M]
  leaves = is_there & (first != heavier[cluster])
  splits = (means < hp.eps1) & (largest > hp.eps2) & (of_cluster.sum(1) > 2)
  if hp.protocol == 'paper':
    across = is_pair & (first[:, None] != first)
    closest = jnp.max(jnp.where(across, likeness, -1), 1)  # [C]
    closest = jnp.max(jnp.where(of_cluster, closest, -1), 1)
    splits &= jnp.sqrt(jnp.maximum(1 - closest, 0) / 2) > hp.gamma
  number = last + jnp.cumsum(splits)  # of the half that leaves
  splits &= number < hp.clusters
  new = jnp.where(leaves & splits[cluster], number[cluster], cluster)
  target = jnp.where(splits, number, hp.clusters)
  return new, numbers.at[target].set(numbers, mode='drop')


def halves(likeness: Array, is_pair: Array, is_complete: bool) -> Array:
  """Return for each row [C] whether it is in the first half of its cluster.

  is_pair: [C, C] whether two are of one cluster. Of each cluster the groups of
  the most similar pair become one, until there are two.
  """
  size = len(likeness)
  places = jnp.arange(size)
  worse = jnp.minimum if is_complete else jnp.maximum

  def join(_, state):
    likeness, group = state  # group [C]: the first row of its group
    is_first = group == places
    number = jnp.sum(is_pair & is_first, 1)  # groups in the cluster of a row
    may = is_pair & is_first & is_first[:, None] & (number > 2)
    may &= places[:, None] < places
    best = jnp.argmax(jnp.where(may, likeness, -jnp.inf))
    left, right = jnp.divmod(best, size)
    merged = worse(likeness[left], likeness[right])
    joined = likeness.at[left].set(merged).at[:, left].set(merged)
    group_joined = jnp.where(group == right, left, group)
    return trees.choose(may.any(), (joined, group_joined), state)

  _, group = lax.fori_loop(0, size, join, (likeness, places))
  first = jnp.min(jnp.where(is_pair, group, size), 1)
  return group == first
