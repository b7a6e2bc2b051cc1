"""kNN-Per (Marfoq et al. 2022): a client's nearest examples join the vote.

  w       <- as FedAvg
  p(y|x)   = lam p_kNN(y|x) + (1 - lam) softmax(z(x))_y
  p_kNN(y) = sum_{j in kNN: y_j = y} s_j / sum_{j in kNN} s_j,
  s_j      = exp(-|f(x) - f(x_j)|^2 / (F scale))

z and f are the logits and features under w, and the k nearest are those of all
training examples of the client in |f(x) - f(x_j)|, taken in batches of random
order, which matters to BatchNorm.

Views: those of a global model, and 'neighbours' with p.

New client: it needs no training, its examples alone.

Differs from the paper: s_j is that of the public code, as golden cases show.
The paper's text was not at hand; as others cite it, it has exp(-d) of a
distance d, not of its square. lam is one number for all clients, to be chosen
on validation; the public code chooses it for each client, on its tests.
Examples are not augmented for their features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model, own_examples
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.data.batching import rows_in_order


class HParams(global_model.HParams):
  lam: float = field(0.5, rules.share(), traced=True)  # 0 is FedAvg
  neighbours: int = field(  # k
    10, rules.count('examples', 'a share of the examples')
  )
  scale: float = field(1.0, rules.above(0), traced=True)


FAMILY, PAPER = 'mixtures', 'arxiv.org/abs/2111.09360'
FEDAVG_EQUIVALENT = {}  # always
NEEDS_CLASSES = True
FEDAVG_WHERE = 'its global model'
PRIVATE_LEAVES = ()
ONE_LABEL = True  # not one for each token: it keeps features of all examples


class Store(NamedTuple):
  """The view: the model, and the features of a client's examples."""

  params: Params
  features: Array  # [N, F]
  labels: Array  # [N]
  is_real: Array  # [N] bool
  rule = (
    'p = lam p_kNN + (1 - lam) softmax(network(x)); neighbours of f are '
    "real rows of features/; lam, neighbours and scale are the run's: kNN-Per"
  )


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of kNN-Per."""
  averaging = global_model.federated_averaging(task, hp)

  def views(server, client, data, rng):
    args = task, server.params, data, rng, hp.finetune.template_batch
    of_fedavg = averaging.personalize(server, client, data, rng)
    return {**of_fedavg, 'neighbours': store_of(*args)}

  def predict(view, x, mask):
    if not isinstance(view, Store):
      return averaging.predict(view, x, mask)
    p = jax.nn.softmax(task.logits(view.params, x, mask))
    f = task.features(view.params, x, mask)
    near = vote(view, f, task.num_classes, hp)
    # Without an example there is no neighbour: the model speaks alone.
    lam = hp.lam * jnp.any(view.is_real)
    return jnp.log(jnp.maximum(lam * near + (1 - lam) * p, 1e-30))

  algorithm = averaging._replace(personalize=views, predict=predict)
  return (Stage('knn_per', hp.train.rounds, algorithm),)


def vote(store: Store, f: Array, num_classes: int, hp: HParams) -> Array:
  """Return p_kNN [B, Y] of features [B, F]."""
  away = jnp.sum((f[:, None] - store.features) ** 2, axis=-1)  # [B, N]
  away = jnp.where(store.is_real, away, jnp.inf)
  number = min(hp.neighbours, store.labels.shape[0])
  near, places = lax.top_k(-away, number)  # [B, k]
  # Relative to the nearest: the quotient is the same, and no sum is 0.
  near = near - jnp.where(jnp.isinf(near[:, :1]), 0, near[:, :1])
  weights = jnp.exp(near / (f.shape[1] * hp.scale))
  classes = jax.nn.one_hot(store.labels[places], num_classes)  # [B, k, Y]
  votes = jnp.sum(weights[..., None] * classes, axis=1)
  return votes / jnp.maximum(jnp.sum(weights, axis=1, keepdims=True), 1e-30)


def store_of(
  task: Task, params: Params, data: ClientData, rng: Key, batch_size: int
) -> Store:
  """Return the features of all examples of the client, batch after batch."""
  data = own_examples.shuffled(data, rng)
  length = data.index.shape[0]
  size = min(batch_size, length)
  order = jnp.arange(length)

  def of_batch(position):
    x, y, real = rows_in_order(data, order, position, size)
    x = task.normalise(x, rng)
    mask = real.astype(losses.float_dtype(x))
    return task.features(params, x, mask), y, real

  f, y, real = lax.map(of_batch, jnp.arange(-(-length // size)))
  return Store(params, f.reshape(-1, f.shape[-1]), y.ravel(), real.ravel())
