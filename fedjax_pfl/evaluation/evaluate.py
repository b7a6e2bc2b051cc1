"""Evaluate the models of every client on that client's test examples.

The views come from the method's own `personalize`, which is given training
data only.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Server, View
from fedjax_pfl.core.rules import count, one_of
from fedjax_pfl.core.types import ClientData, Key, PyTree, Scores, Transform
from fedjax_pfl.data.client_data import client_of, with_own_pool
from fedjax_pfl.evaluation.metrics import TEST_BATCH, score_view
from fedjax_pfl.evaluation.own_metrics import Metrics, with_metrics
from fedjax_pfl.federated import client_map
from fedjax_pfl.federated.chunking import map_chunks
from fedjax_pfl.federated.cohort import Cohort
from fedjax_pfl.federated.sharding import PerSize, replicate

Evaluate = Callable[..., tuple[dict[str, Scores], dict[str, View]]]


def view_names(
  algorithm: Algorithm, server: Server, clients: Client, data: ClientData
) -> tuple[str, ...]:
  """Return the names of all views of a method; only shapes are computed."""
  return tuple(view_shapes(algorithm, server, clients, data))


def view_shapes(
  algorithm: Algorithm, server: Server, clients: Client, data: ClientData
) -> dict[str, View]:
  """Return the shapes of all views of one client, by name."""

  def personalize(server, clients, data):
    client, examples = trees.gather(clients, 0), client_of(data, 0)
    return algorithm.personalize(server, client, examples, jax.random.key(0))

  return jax.eval_shape(personalize, server, clients, data)


def check_views(names: Sequence[str], choices: Sequence[str]) -> None:
  """Raise BadInput for a view that the method does not have."""
  cause = 'fine-tuning that stops at other epochs'
  for name in names:
    one_of(choices, 'a view of this method', cause).check('view', name)


def make_evaluate(
  algorithm: Algorithm | Callable[[Any], tuple[Algorithm, Server]],
  normalise: Transform,
  views: Sequence[str],
  *,
  batch_size: int = TEST_BATCH,
  clients_per_chunk: int = 1,
  mesh: Mesh | str | None = 'auto',
  keep_models: bool = False,
  score_fn: Callable[..., PyTree] | None = None,
  metrics: Metrics | None = None,
) -> Evaluate:
  """Return the function that evaluates some clients.

  A client is personalised on its training data and evaluated on all its test
  examples, in stored order, in batches of at most `batch_size`: BatchNorm uses
  the statistics of this client's test batch. Predictions are over ALL classes.

  Args:
    algorithm: the functions of the method; or a function from what is given as
      the server to these functions and the server.
    normalise: the transform of test images, `task.normalise`.
    views: which of the method's views; others are not computed.
    batch_size: test images in a forward pass.
    clients_per_chunk: how many clients are evaluated at the same time.
    mesh: the devices that share the clients, as in `make_round`.
    keep_models: whether to return the models.
    score_fn: another function with the arguments of `metrics.score_view`.
    metrics: your own, {name: (logits [N, Y], labels [N], mask [N]) -> []}, of
      all tests of a client: `own` in its scores; mask is 0 for padding.

  Returns:
    (server, clients [K, ...], ids [C], train, test, key) -> (scores {view:
    Scores [C]}, models {view: pytree [C, ...]}); without `keep_models`
    models are empty. For clients on the host (`stack_clients`), only the rows
    of those C are copied to the device.

  >>> data = pfl.from_arrays([np.ones((2, 8, 8, 1))] * 3, [np.arange(2)] * 3)
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=2)
  >>> fedavg, key = pfl.algorithm('fedavg'), jax.random.key(0)
  >>> (stage,) = fedavg.build(task, fedavg.HParams())
  >>> states = pfl.begin(stage, data, key)
  >>> evaluate = pfl.make_evaluate(
  ...   stage.algorithm, task.normalise, ['initial'])
  >>> scores, _ = evaluate(*states, jnp.arange(3), data, data, key)
  >>> scores['initial'].count.tolist()
  [2, 2, 2]
  """
  chunk = count('clients', "'auto', which make_round has")
  chunk.check('clients_per_chunk', clients_per_chunk)
  score_fn = with_metrics(score_fn or score_view, metrics)
  read = (
    algorithm if callable(algorithm) else lambda server: (algorithm, server)
  )

  def one_client(shared, client, client_id, row):
    given, train, test, key = shared
    method, server = read(given)
    data, held_out = client_of(train, row), client_of(test, row)
    rng = jax.random.fold_in(key, client_id)
    personal = method.personalize(server, client, data, rng)
    check_views(views, personal)
    models = {name: personal[name] for name in views}
    scores = {
      name: score_fn(method.predict, model, held_out, normalise, batch_size)
      for name, model in models.items()
    }
    return scores, models if keep_models else {}

  def on_mesh(shared):
    def row_of(row):  # no state changes, nothing is sent
      return None, (), one_client(shared, row.clients, row.ids, row.ids)

    return row_of

  def evaluate(mesh, server, clients, ids, places, train, test, key):
    shared = server, train, test, key
    if mesh is None:
      rows = trees.gather(clients, places), ids, places
      return map_chunks(
        lambda row: one_client(shared, *row), rows, clients_per_chunk
      )
    deal = client_map.deal_as_given(ids, mesh.size)
    places = client_map.num_places(train.count.shape[0], mesh.size)
    padded = client_map.pad_rows(clients, places)
    rows = Cohort(clients=(), index=None, count=None, ids=deal.ids)
    return client_map.map_on_mesh(
      on_mesh, shared, padded, deal, rows, clients_per_chunk, mesh
    )[-1]

  def compiled(where):
    return replicate(jax.jit(partial(evaluate, where)), where, divided=1)

  on_devices, on_one = PerSize(compiled, mesh), PerSize(compiled, None)

  def evaluate_rows(server, clients, ids, train, test, key):
    places, evaluate_fn = ids, on_devices
    if isinstance(train.index, np.ndarray):  # rows are on the host
      evaluate_fn, chosen = on_one, np.asarray(ids)
      clients, places = trees.gather(clients, chosen), jnp.arange(chosen.size)
      train, test = (
        with_own_pool(client_of(data, chosen)) for data in (train, test)
      )
    return evaluate_fn(server, clients, ids, places, train, test, key)

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
  ids: np.ndarray | None = None,
  on_progress: Callable[[int], None] | None = None,
  on_models: Callable[[np.ndarray, dict[str, View]], None] | None = None,
) -> dict[str, Scores]:
  """Return the scores of K clients, evaluated block by block.

  All blocks have one size, so that one compilation serves them all; the last
  is filled up with client 0, whose repeated scores are dropped.

  Args:
    evaluate: what `make_evaluate` returns.
    views: the views that it evaluates, in the order of the result.
    server: the state of the server.
    clients: the states of all clients [K, ...].
    train: the training examples of all clients.
    test: their test examples.
    key: a JAX key; client k personalises with fold_in(key, k).
    block: how many clients are evaluated in one call.
    ids: who is evaluated; None: all. The others have 0 right of 0 tests.
    on_progress: is called with the number of clients done after every block.
    on_models: is called with the ids and the models of every block.

  Returns:
    {view: Scores [K]} of numpy arrays.

  >>> def evaluate(server, clients, ids, train, test, key):
  ...   count = test.count[ids]
  ...   return {'always_right': pfl.Scores(correct=count, count=count)}, {}
  >>> data = pfl.from_arrays([np.ones((2, 8, 8, 1))] * 3, [np.arange(2)] * 3)
  >>> scores = pfl.evaluate_clients(evaluate, ['always_right'], None, None,
  ...                               data, data, jax.random.key(0), block=2)
  >>> scores['always_right'].correct
  array([2, 2, 2], dtype=int32)
  """
  num_clients = train.count.shape[0]
  ids = np.arange(num_clients) if ids is None else ids
  block, parts = min(block, len(ids)), []

  def begin(first):
    members = ids[first : first + block]
    members = np.pad(members, (0, block - len(members)))
    rows = jnp.asarray(members)
    return members, *evaluate(server, clients, rows, train, test, key)

  begun = itertools.chain(map(begin, range(0, len(ids), block)), [None])
  # The rows of a block are collected while the one before is evaluated.
  for (members, scores, models), _ in itertools.pairwise(begun):
    parts.append(jax.tree.map(np.asarray, scores))
    if on_models is not None:
      on_models(members, models)
    if on_progress is not None:
      on_progress(min(block * len(parts), len(ids)))

  def of_all(*parts):
    rows = np.concatenate(parts)[: len(ids)]
    whole = np.zeros((num_clients, *rows.shape[1:]), rows.dtype)
    whole[ids] = rows
    return whole

  scores = jax.tree.map(of_all, *parts)
  return {view: scores[view] for view in views}  # a tree map sorts them
