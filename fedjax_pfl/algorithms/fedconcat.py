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

With distributions 'inferred' (FedConcat-ID) p_i is not told: in the first of
the T_e rounds ALL clients train the common model, and p_i is the mean softmax
of theirs on inputs of uniform noise in [0, 1). Those models are then averaged
inside the clusters. With `cap_factor` no cluster has more than
floor(cap_factor K / M) clients (1.2 in the paper's code for 100 classes).

The features F(x) are computed once for all rounds where that is exact: no
augmentation and no layer that depends on the batch. `cache` 'always' does it
in any case, on images that are not augmented.

Differs from the paper: encoders are as in testing when C is trained and noise
is shown (no dropout; its code leaves them in training mode); the differential
privacy of p_i is left out; learning rate and momentum are those of `train` in
all stages.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.client import clustering, local_training, personalization
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.data.batching import Batching
from fedjax_pfl.data.label_counts import label_counts_of_clients, label_shares
from fedjax_pfl.models import concatenated

CHOICES = {
  'distributions': ('true', 'inferred'),
  'head': ('fresh', 'sum'),
  'cache': ('exact', 'always', 'never'),
}
COUNTED = 'clusters', 'classifier_rounds', 'classifier_steps', 'noise_inputs'
NOISE_BATCH = 100


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  clusters: int = 5  # M
  distributions: str = 'true'  # or 'inferred': FedConcat-ID
  noise_inputs: int = 10_000  # inferred: r, in batches of 100
  cap_factor: float | None = None  # of a cluster's fair share; None: no cap
  classifier_rounds: int = 200  # T_c
  classifier_steps: int = 3  # of a client in a round, at most
  classifier_decay: float = 1e-5  # weight decay of C
  head: str = 'fresh'  # or 'sum'
  cache: str = 'exact'  # or 'always', 'never'


FEDAVG_EQUIVALENT = {'clusters': 1}  # in its first stage
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params  # [M, ...] of the clusters
  key: Array  # [2] uint32, for what is drawn between the stages


class ClassifierServer(NamedTuple):
  round: Array
  encoders: Params  # [M, ...] bodies
  head: Params


class Down(NamedTuple):
  round: Array
  params: Params  # of one's own cluster


class Local(NamedTuple):
  """What a client has after the round in which distributions are inferred."""

  params: Params
  shares: Array  # [Y]


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the stages: (inference,) clusters, classifier."""
  _check(hp)
  rounds = hp.train.rounds
  first = Stage(
    'clusters',
    rounds,
    cluster_rounds(task, hp),
    initialize=partial(_enter_with_labels, task, hp),
    validate_clients=partial(_check_clients, task, hp),
  )
  if hp.distributions == 'true':
    return first, _classifier(task, hp)
  inference = Stage(
    'inference',
    1,
    inference_round(task, hp),
    validate_clients=first.validate_clients,
    full_participation=True,
  )
  rest = first._replace(
    rounds=rounds - 1, initialize=partial(_enter_with_models, hp)
  )
  return inference, rest, _classifier(task, hp)


def cluster_rounds(task: Task, hp: HParams) -> Algorithm:
  """Return FedAvg inside every cluster; a client keeps its cluster's number."""

  def local_update(down, cluster, data, rng):
    params, info = _train(task, hp, down, data, rng)
    return cluster, (params, cluster), info.metrics()

  def aggregate(server, uploads, counts):
    models, cluster = uploads
    means = trees.segment_mean(
      models, hp.train.weights(counts), cluster, server.params
    )
    return Server(server.round + 1, means, server.key)

  return Algorithm(
    init_server=partial(_init_server, task, hp),
    init_client=lambda server, data, rng: jnp.zeros((), jnp.int32),
    download=lambda server, cluster: Down(
      server.round, trees.gather(server.params, cluster)
    ),
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, trees.gather(server.params, client), data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
  )


def inference_round(task: Task, hp: HParams) -> Algorithm:
  """Return the round in which clients train alone and are shown noise."""

  def local_update(down, client, data, rng):
    params, info = _train(task, hp, down, data, rng)
    shape = jax.eval_shape(task.normalise, data.x[:1], rng)
    noise_rng = jax.random.fold_in(rng, 1)
    shares = mean_softmax(
      task,
      params,
      lambda number: jax.random.uniform(
        jax.random.fold_in(noise_rng, number),
        (NOISE_BATCH, *shape.shape[1:]),
        shape.dtype,
      ),
      -(-hp.noise_inputs // NOISE_BATCH),
    )
    client = Local(params, shares)
    return client, client, info.metrics()

  def init_client(server, data, rng):
    shares = jnp.zeros(task.num_classes, float)
    return Local(trees.gather(server.params, 0), shares)

  return Algorithm(
    init_server=partial(_init_server, task, hp),
    init_client=init_client,
    download=lambda server, client: Down(
      server.round, trees.gather(server.params, 0)
    ),
    local_update=local_update,
    # The models are averaged when clusters are known: as the next stage begins.
    aggregate=lambda server, uploads, counts: Server(
      server.round + 1, server.params, server.key
    ),
    personalize=lambda server, client, data, rng: personalization.views(
      task, client.params, data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
  )


def _train(task, hp, down, data, rng):
  return local_training.fit(
    task.loss,
    down.params,
    data,
    rng,
    tx=hp.train.sgd(down.round),
    batching=hp.train.batching(task),
  )


def mean_softmax(task: Task, params: Params, inputs_at, batches: int) -> Array:
  """Return the mean of softmax(logits) over inputs_at(0), inputs_at(1), ..."""

  def add(number, total):
    x = inputs_at(number)
    logits = task.logits(params, x, jnp.ones(x.shape[0], x.dtype))
    return total + jax.nn.softmax(logits).mean(0) / batches

  return lax.fori_loop(0, batches, add, jnp.zeros(task.num_classes, float))


def classifier_rounds(task: Task, hp: HParams, cached: bool) -> Algorithm:
  """Return the rounds of C on frozen features.

  `cached`: what clients hold are the features themselves.
  """
  model = concatenated.widen(task, hp.clusters)
  sgd = hp.train._replace(weight_decay=hp.classifier_decay).sgd
  batching = Batching(
    hp.train.batch_size,
    1,
    _as_is if cached else task.augment,
    hp.train.shuffle,
    steps=at_most(hp.classifier_steps),
  )

  def local_update(down, client, data, rng):
    def loss(head, batch, rng):
      rows = batch.x
      if not cached:
        rows = model.features({'encoders': down.encoders}, batch.x, batch.mask)
      return losses.masked_cross_entropy(concatenated.linear(head, rows), batch)

    head, info = local_training.fit(
      loss, down.head, data, rng, tx=sgd(down.round), batching=batching
    )
    return client, head, info.metrics()

  def aggregate(server, heads, counts):
    has_any = jnp.where(jnp.any(counts > 0), counts > 0, True)
    head = trees.weighted_mean(heads, has_any.astype(float))
    return ClassifierServer(server.round + 1, server.encoders, head)

  def init_server(rng):
    params = model.init(rng)
    return ClassifierServer(jnp.zeros((), jnp.int32), **params)

  return Algorithm(
    init_server=init_server,
    init_client=lambda server, data, rng: (),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      model, as_params(server), data, rng, hp.finetune
    ),
    predict=personalization.make_predict(model),
    global_model=as_params,
  )


def at_most(limit: int):
  """Return n -> min(n, limit), for whole numbers and for traced ones."""
  return lambda number: number - (number > limit) * (number - limit)


def as_params(server: ClassifierServer) -> Params:
  """Return the parameters of the wide model."""
  return {'encoders': server.encoders, 'head': server.head}


def _classifier(task, hp):
  """Return the last stage, with the reason why it caches features or not."""
  exact = task.batch_independent and task.augment is task.normalise
  cached = hp.cache == 'always' or (hp.cache == 'exact' and exact)
  model = concatenated.widen(task, hp.clusters)

  def initialize(server, clients, data):
    key = jax.random.wrap_key_data(server.key)
    head = (
      concatenated.warm_head(server.params)
      if hp.head == 'sum'
      else concatenated.fresh_head(
        task, hp.clusters, jax.random.fold_in(key, 1)
      )
    )
    encoders = concatenated.encoders_of(task, server.params)
    return ClassifierServer(server.round, encoders, head), ()

  def prepare_data(server, data):
    if not cached:
      return data
    return concatenated.pool_features(model, as_params(server), data)

  return Stage(
    'classifier',
    hp.classifier_rounds,
    classifier_rounds(task, hp, cached),
    initialize=initialize,
    prepare_data=prepare_data,
    initial_broadcast=lambda server: server.encoders,
    note=_note(task, cached, exact),
  )


def _note(task, cached, exact):
  if cached and exact:
    return 'classifier: features of all images are computed once, exactly.'
  if cached:
    return (
      'classifier: features are computed once, of images that are not '
      'augmented: not what the paper does (hp.cache).'
    )
  reason = 'hp.cache=never'
  if not task.batch_independent:
    reason = 'a layer depends on the batch'
  elif task.augment is not task.normalise:
    reason = 'images are augmented'
  return f'classifier: features are computed anew in every step: {reason}.'


def _init_server(task, hp, rng):
  params = task.init(rng)
  same = jax.tree.map(
    lambda leaf: jnp.broadcast_to(leaf, (hp.clusters, *leaf.shape)), params
  )
  key = jax.random.key_data(jax.random.fold_in(rng, 1))
  return Server(jnp.zeros((), jnp.int32), same, key)


def _enter_with_labels(task, hp, server, clients, data):
  """Return the states with clusters by the labels that clients hold."""

  def on_host(key, y, index, count):
    held = label_counts_of_clients(
      ClientData(None, y, index, count), task.num_classes
    )
    shares = label_shares(held)
    return clustering.cluster(shares, hp.clusters, int(key[0]), hp.cap_factor)

  shape = jax.ShapeDtypeStruct(clients.shape, jnp.int32)
  return server, jax.pure_callback(
    on_host, shape, server.key, data.y, data.index, data.count
  )


def _enter_with_models(hp, server, clients, data):
  """Return the states with clusters by what clients' models say of noise."""

  def on_host(key, shares):
    return clustering.cluster(shares, hp.clusters, int(key[0]), hp.cap_factor)

  shape = jax.ShapeDtypeStruct(data.count.shape, jnp.int32)
  cluster = jax.pure_callback(on_host, shape, server.key, clients.shares)
  params = trees.segment_mean(
    clients.params, hp.train.weights(data.count), cluster, server.params
  )
  return Server(server.round, params, server.key), cluster


def _check_clients(task: Task, hp: HParams, data: ClientData) -> None:
  if hp.distributions == 'inferred':  # they differ, whatever the labels
    shares = np.eye(data.count.shape[0])
  else:
    shares = label_shares(label_counts_of_clients(data, task.num_classes))
  clustering.check_clusters(shares, hp.clusters)
  if hp.cap_factor is not None:
    clustering.check_cap(len(shares), hp.clusters, hp.cap_factor)


def _as_is(x: Array, rng: Key) -> Array:
  del rng
  return x


def _check(hp: HParams) -> None:
  for field, choices in CHOICES.items():
    if getattr(hp, field) not in choices:
      raise bad_input(
        f'hp.{field}',
        got=getattr(hp, field),
        expected='a known word',
        choices=choices,
        cause='a typing error',
      )
  if hp.cap_factor is not None and not isinstance(hp.cap_factor, int | float):
    raise bad_input(
      'hp.cap_factor',
      got=hp.cap_factor,
      expected='a number above 1, or None: no cap',
      cause='a word instead of a number',
    )
  if not hp.classifier_decay >= 0:
    raise bad_input(
      'hp.classifier_decay',
      got=hp.classifier_decay,
      expected='a number, 0 or more',
      cause='a sign: it is a penalty, written as a positive number',
    )
  for field in COUNTED:
    what = field.rpartition('_')[2]
    value = getattr(hp, field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
      raise bad_input(
        f'hp.{field}',
        got=value,
        expected=f'a whole number of {what}, 1 or more',
        cause='a fraction, or 0 to switch it off: that is another method',
      )
