"""FedConcat (Diao, Li and He 2024): cluster, average inside, concatenate.

  k(i)     <- K-means of the label distributions p_i, once
  w_i      <- SGD_tau(w^{k(i)}; data of client i)   for i in the cohort S
  w^k      <- sum_{i in S, k(i) = k} a_i w_i / sum a_i      a_i = 1 or n_i
  F        =  [E_1, ..., E_M], the bodies of w^1, ..., w^M, then frozen
  C_i      <- at most 3 SGD steps on CE(C(F(x)), y) from C
  C        <- mean of C_i over the cohort, unweighted

All clusters begin with the same model and train in the same compiled round; a
cluster without participants keeps its model. T_e = `train.rounds` rounds are
those of the clusters, `classifier_rounds` those of C, which begins as a fresh
linear layer or, with head 'sum', as the sum of the clusters' classifiers.
`lr_milestones` are fractions of T_e, so that all rounds of C come after both
drops of the learning rate: the configs set lr_milestones=(). `head_init` and
`head_bias` are for the models of the clusters; a fresh C does not follow them.

With distributions 'inferred' (FedConcat-ID) clients do not send p_i: in the
first of the T_e rounds ALL clients train the common model, and p_i is the mean
softmax of theirs on inputs of uniform noise in [0, 1). Those models are then
averaged inside the clusters. With `cap_factor` no cluster has more than
floor(cap_factor K / M) clients (1.2 in the paper's code for 100 classes).

The features F(x) are computed once for all rounds where that is exact: no
augmentation and no layer that depends on the batch. `cache` 'always' does it
in any case, on images that are not augmented.

New client: it has F and C, as all others; it needs no cluster.

Differs from the paper: a_i is 1 by default, n_i there. Encoders are as in
testing when C is trained and on noise (no dropout; its code leaves them in
training mode); the differential privacy of p_i is left out; learning rate and
momentum are those of `train` in all stages.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.client import (
  clustering,
  frozen_features,
  global_model,
  personalization,
)
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input, check_installed
from fedjax_pfl.core.machine import call_on_host
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.data.client_data import (
  label_counts,
  label_counts_of_clients,
  label_shares,
)
from fedjax_pfl.models import concatenated

NOISE_BATCH = 100


WORD = 'a known word'
OFF = 'a fraction, or 0 to switch it off: that is another method'


class HParams(global_model.HParams):
  clusters: int = field(5, rules.count('clusters', OFF))  # M
  distributions: str = field(  # or 'inferred': FedConcat-ID
    'true', rules.one_of(('true', 'inferred'), WORD)
  )
  noise_inputs: int = field(  # inferred: r, in batches of 100
    10_000, rules.count('inputs', OFF)
  )
  cap_factor: float | None = field(  # of a cluster's fair share; None: no cap
    None, rules.above(1).or_none('no cap'), traced=True
  )
  classifier_rounds: int = field(200, rules.count('rounds', OFF))  # T_c
  classifier_steps: int = field(  # of a client in a round, at most
    3, rules.count('steps', OFF)
  )
  classifier_decay: float = field(  # weight decay of C
    1e-5, rules.at_least(0), traced=True
  )
  head: str = field('fresh', rules.one_of(('fresh', 'sum'), WORD))  # or 'sum'
  cache: str = field(  # or 'always', 'never'
    'exact', rules.one_of(('exact', 'always', 'never'), WORD)
  )


FAMILY, PAPER = 'clusters', 'arxiv.org/abs/2312.06290'
FEDAVG_EQUIVALENT = {'clusters': 1}
NEEDS_CLASSES = True
FEDAVG_WHERE = 'in its first stage'
PRIVATE_LEAVES = ()
NOT_CLIPPED = 'whose server groups clients by their single uploads'
NEEDS_BODY = True  # it concatenates encoders
ONE_LABEL = True  # not one for each token: clients would keep all features
# A client tests encoders of other clusters, of which it keeps no statistics.
NORM_STATISTICS = ('batch', 'running')


class Server(NamedTuple):
  """The server of the clusters; that of C has one model, {encoders, head}."""

  round: Array
  params: Params  # [M, ...] of the clusters
  key: Array  # [2] uint32, for what is drawn between the stages


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the stages: (inference,) clusters, classifier."""
  check_installed('algorithm', 'sklearn')
  rules.Rule(
    lambda rounds: rounds >= 1,
    '1 round or more with fedconcat, whose classifier is trained on the '
    'encoders of these rounds',
    'rounds=0, which only evaluates a model',
    ['algorithm=fedavg, to evaluate the model of init_from'],
  ).check('rounds', hp.train.rounds)
  clusters = Stage(
    'clusters',
    hp.train.rounds,
    cluster_algorithm(task, hp),
    initialize=partial(cluster_by_labels, task, hp),
    validate_clients=partial(check_clients, task, hp),
  )
  if hp.distributions == 'true':
    return clusters, classifier_stage(task, hp)
  inference = Stage(
    'inference',
    1,
    inference_algorithm(task, hp),
    validate_clients=clusters.validate_clients,
    full_participation=True,
  )
  clusters = clusters._replace(
    rounds=hp.train.rounds - 1, initialize=partial(cluster_by_models, hp)
  )
  return inference, clusters, classifier_stage(task, hp)


# ---- Rounds of the clusters --------------------------------------------------


def cluster_algorithm(task: Task, hp: HParams) -> Algorithm:
  """Return FedAvg inside every cluster; a client keeps its cluster's number."""

  def local_update(down, cluster, data, rng):
    params, info = hp.train.fit(task, down.params, data, rng, down.round)
    return cluster, (params, cluster), info.metrics()

  def aggregate(server, uploads, senders):
    models, cluster = uploads
    weights = hp.train.weights(senders.counts)
    means = senders.segment_mean(models, weights, cluster, server.params)
    return Server(server.round + 1, means, server.key)

  return Algorithm(
    init_server=partial(init_server, task, hp),
    init_client=lambda server, data, rng: jnp.zeros((), jnp.int32),
    download=model_of_cluster,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, trees.gather(server.params, client), data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
  )


def init_server(task: Task, hp: HParams, rng: Key) -> Server:
  """Return the server with the same initial model for all clusters."""
  models = trees.repeated(task.init(rng), hp.clusters)
  key = jax.random.key_data(jax.random.fold_in(rng, 1))
  return Server(jnp.zeros((), jnp.int32), models, key)


def model_of_cluster(server: Server, cluster: Array) -> global_model.Server:
  """Return what a client of this cluster downloads."""
  return global_model.Server(server.round, trees.gather(server.params, cluster))


def cluster_by_labels(task, hp, server, clients, data):
  """Return the states with clusters by the labels that clients hold."""
  count = partial(label_counts, num_classes=task.num_classes)
  counts = jax.vmap(count, (ClientData(None, None, 0, 0),))(data)  # [K, Y]
  return server, cluster_on_host(hp, server, label_shares, counts)


def cluster_on_host(
  hp: HParams, server: Server, shares_of: Callable, rows: Array
) -> Array:
  """Return the clusters [K] of shares_of(rows), [K, Y]."""

  def on_host(key, rows):
    seed, shares = int(key[0]), shares_of(rows)
    return clustering.cluster(shares, hp.clusters, seed, hp.cap_factor)

  shape = jax.ShapeDtypeStruct(rows.shape[:1], jnp.int32)
  return call_on_host(on_host, shape, server.key, rows)


# ---- FedConcat-ID: the round in which distributions are inferred -------------


class InferenceClient(NamedTuple):
  params: Params
  shares: Array  # [Y]


def inference_algorithm(task: Task, hp: HParams) -> Algorithm:
  """Return the round in which clients train alone, and p_i is inferred."""

  def local_update(down, client, data, rng):
    params, info = hp.train.fit(task, down.params, data, rng, down.round)
    image = jax.eval_shape(task.normalise, data.x[:1], rng)  # [1, H, W, ch]
    shape = (NOISE_BATCH, *image.shape[1:])
    noise_rng = jax.random.fold_in(rng, 1)

    def noise(number):
      key = jax.random.fold_in(noise_rng, number)
      return jax.random.uniform(key, shape, image.dtype)

    batches = -(-hp.noise_inputs // NOISE_BATCH)
    shares = mean_softmax(task, params, noise, batches)
    client = InferenceClient(params, shares)
    return client, client, info.metrics()

  return Algorithm(
    init_server=partial(init_server, task, hp),
    init_client=lambda server, data, rng: InferenceClient(
      trees.gather(server.params, 0), jnp.zeros(task.num_classes, float)
    ),
    download=lambda server, client: model_of_cluster(server, 0),
    local_update=local_update,
    # The next stage averages the models: it begins with their clusters.
    aggregate=global_model.count_round,
    personalize=lambda server, client, data, rng: personalization.views(
      task, client.params, data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
  )


def mean_softmax(task: Task, params: Params, inputs_at, batches: int) -> Array:
  """Return the mean of softmax(logits) over inputs_at(0), inputs_at(1), ..."""

  def add(number, total):
    x = inputs_at(number)
    logits = task.logits(params, x, jnp.ones(x.shape[0], x.dtype))
    return total + jax.nn.softmax(logits).mean(0) / batches

  return lax.fori_loop(0, batches, add, jnp.zeros(task.num_classes, float))


def cluster_by_models(hp, server, clients, data):
  """Return the states with clusters by p_i, and the models averaged in them."""
  shares = jnp.where(data.count[:, None] > 0, clients.shares, 0)
  cluster = cluster_on_host(hp, server, lambda shares: shares, shares)
  params = trees.segment_mean(
    clients.params, hp.train.weights(data.count), cluster, server.params
  )
  return server._replace(params=params), cluster


# ---- Rounds of the classifier C ----------------------------------------------


def classifier_stage(task: Task, hp: HParams) -> Stage:
  """Return the last stage."""
  model = concatenated.widen(task, hp.clusters)
  is_cached = hp.cache == 'always' or (
    hp.cache == 'exact' and frozen_features.is_exact(task)
  )

  def initialize(server, clients, data):
    if hp.head == 'sum':
      head = concatenated.warm_head(server.params)
    else:
      key = jax.random.fold_in(jax.random.wrap_key_data(server.key), 1)
      head = concatenated.fresh_head(task, hp.clusters, key)
    encoders = concatenated.encoders_of(task, server.params)
    params = {'encoders': encoders, 'head': head}
    return global_model.Server(server.round, params), ()

  def prepare_data(server, data):
    if not is_cached:
      return data
    return concatenated.pool_features(model, server.params, data)

  return Stage(
    'classifier',
    hp.classifier_rounds,
    frozen_features.head_averaging(
      model,
      hp._replace(train=hp.train._replace(weight_decay=hp.classifier_decay)),
      hp.classifier_steps,
      is_cached,
    ),
    initialize=initialize,
    prepare_data=prepare_data,
    initial_broadcast=lambda server: server.params['encoders'],
  )


# ---- Checks ------------------------------------------------------------------


def check_clients(task: Task, hp: HParams, data: ClientData) -> None:
  """Refuse more clusters than different clients, and a cap without room.

  And inputs of whole numbers, where models are asked about noise in [0, 1].
  """
  if hp.distributions == 'inferred':  # they differ, whatever the labels
    held = np.asarray(data.count) > 0
    shares = (np.cumsum(held) * held)[:, None]
    inputs = jax.eval_shape(task.normalise, data.x[:1], jax.random.key(0))
    if not jnp.issubdtype(inputs.dtype, jnp.floating):
      raise bad_input(
        'hp.distributions',
        got='inferred, with inputs that are whole numbers',
        expected='inputs of floats: the distributions are inferred from noise',
        choices=['hp.distributions=true'],
      )
  else:
    shares = label_shares(label_counts_of_clients(data, task.num_classes))
  clustering.check_clusters(shares, hp.clusters)
  if hp.cap_factor is not None:
    number = int(shares.any(1).sum())
    clustering.check_cap(number, hp.clusters, hp.cap_factor)
