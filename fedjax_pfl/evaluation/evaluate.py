"""How good the models of every client are, on that client's test examples.

The views that a method may be evaluated by come from its own `personalize`,
which never sees the examples that it is evaluated on; this file only counts.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Server, View
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData, Key, PyTree, Scores, Transform
from fedjax_pfl.evaluation.metrics import TEST_BATCH, score_view
from fedjax_pfl.federated.client_map import map_clients
from fedjax_pfl.federated.cohort import is_on_host

Evaluate = Callable[..., tuple[dict[str, Scores], dict[str, View]]]


def view_names(
  algorithm: Algorithm, server: Server, clients: Client, data: ClientData
) -> tuple[str, ...]:
  """Return the names of all views of a method, without computing any."""

  def personalize(server, clients, data):
    one = ClientData(data.x, data.y, data.index[0], data.count[0])
    client = trees.gather(clients, 0)
    return algorithm.personalize(server, client, one, jax.random.key(0))

  return tuple(jax.eval_shape(personalize, server, clients, data))


def check_views(names: Sequence[str], choices: Sequence[str]) -> None:
  """Refuse a view that the method does not have."""
  for name in names:
    if name not in choices:
      raise bad_input(
        'view',
        got=name,
        expected='a view of this method',
        choices=choices,
        cause='a typing error, or fine-tuning that stops at other epochs',
      )


def make_evaluate(
  algorithm: Algorithm,
  normalise: Transform,
  views: Sequence[str],
  *,
  batch_size: int = TEST_BATCH,
  clients_per_chunk: int = 1,
  mesh: Mesh | None = None,
  keep_models: bool = False,
  score_fn: Callable[..., PyTree] | None = None,
) -> Evaluate:
  """Return (server, clients, ids [C], train, test, key) -> (scores, models).

  Scores are {view: Scores [C]}, or what a `score_fn` with the arguments of
  `score_view` returns; models are {view: View [C]}, or empty.

  A client is personalised on its training data and evaluated on its whole test
  set, in stored order, in batches of at most `batch_size`: BatchNorm sees one
  client's test images only. The class predicted is the best of ALL classes.
  Views that are not asked for are not computed. Of clients on the host, the
  rows of those C alone come to the device. The devices of a `mesh` each
  evaluate a share of the clients.
  """
  score_fn = score_fn or score_view

  def one_client(shared, row):
    server, train, test, key = shared
    client, client_id, place = row
    data = ClientData(train.x, train.y, train.index[place], train.count[place])
    models = algorithm.personalize(
      server, client, data, jax.random.fold_in(key, client_id)
    )
    held_out = ClientData(test.x, test.y, test.index[place], test.count[place])
    scores = {
      name: score_fn(
        algorithm.predict, models[name], held_out, normalise, batch_size
      )
      for name in views
    }
    return scores, {name: models[name] for name in views if keep_models}

  @jax.jit
  def evaluate(server, clients, ids, places, train, test, key):
    return map_clients(
      one_client,
      (server, train, test, key),
      (trees.gather(clients, places), ids, places),
      clients_per_chunk,
      mesh,
    )

  def evaluate_rows(server, clients, ids, train, test, key):
    places = ids
    if is_on_host(train):
      chosen = np.asarray(ids)
      clients, places = trees.gather(clients, chosen), jnp.arange(chosen.size)
      train, test = (
        data._replace(index=data.index[chosen], count=data.count[chosen])
        for data in (train, test)
      )
    return evaluate(server, clients, ids, places, train, test, key)

  return evaluate_rows


def evaluate_clients(
  evaluate: Evaluate,
  views: Sequence[str],
  server: Server,
  clients: Client,
  train: ClientData,
  test: ClientData,
  key: Key,
  *,
  block: int = 10,
  on_progress: Callable[[int], None] | None = None,
  on_models: Callable[[np.ndarray, dict[str, View]], None] | None = None,
) -> dict[str, Scores]:
  """Return the scores of all K clients, block after block, as numpy arrays.

  Blocks of one size, so that one compilation serves them all; the last is
  filled up with client 0, whose second score is dropped. `on_models` is shown
  the ids and the models of every block, before they are gone.
  """
  num_clients = train.count.shape[0]
  block = min(block, num_clients)
  parts = []
  for first in range(0, num_clients, block):
    ids = np.arange(first, first + block)
    ids[ids >= num_clients] = 0
    scores, models = evaluate(
      server, clients, jnp.asarray(ids), train, test, key
    )
    parts.append(jax.tree.map(np.asarray, scores))
    if on_models is not None:
      on_models(ids, models)
    if on_progress is not None:
      on_progress(min(first + block, num_clients))
  scores = jax.tree.map(
    lambda *rows: np.concatenate(rows)[:num_clients], *parts
  )
  return {view: scores[view] for view in views}  # a tree map sorts them
