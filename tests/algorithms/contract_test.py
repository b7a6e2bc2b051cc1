"""What every method promises, checked for each file in algorithms/.

Methods are found, never named: a new file is held to all of this at once. Each
is traced once (`traced`), and run once (`recorded`: three rounds of each stage,
client after client); the tests look at these.

How the engine runs a method must not move its results: the order of the cohort,
the chunk, the backend, and the padding, whatever it points at. The promise is
one about the order of sums, so it is tested with 64 bits, where `assert_close`
asks for 1e-10. Rounds in one call, to the bit: loop_test.py.
"""

import functools
import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  BATCH,
  CLASSES,
  COHORT,
  COUNTS,
  KEY,
  SHAPE,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  every_method,
  long,
  make_data,
  make_task,
  pad,
  play,
  round_of,
)

from experiments.method_pages.page import NEW_CLIENT, paragraph
from fedjax_pfl.algorithms import load, own_defaults
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import SERVER_FINITE, Stage, private_names
from fedjax_pfl.core.trees import kinds
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.evaluation.new_clients import first_state
from fedjax_pfl.federated.cohort import all_send
from fedjax_pfl.federated.rounds import begin, stage_shapes
from fedjax_pfl.models.registry import outline

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
WIDE = pad(DATA, 2 * max(COUNTS), row=-1)  # padding shows the poisoned row
OTHERS = np.setdiff1d(np.arange(len(COUNTS)), COHORT)
ONE, RNG, ROUNDS = client_of(DATA, 0), KEY(0), 3


@functools.cache
def stages_of(name):
  return build(name)


class Traced(NamedTuple):
  """A stage with the shapes of its states and messages."""

  stage: Stage
  server: Any
  clients: Any
  client: Any  # a row of them, before local training
  down: Any  # to it
  after: Any  # and after
  up: Any
  metrics: Any
  views: Any


@functools.cache
def traced(name) -> list[Traced]:
  found = []
  for stage, server, clients in stage_shapes(stages_of(name), DATA):
    algorithm = stage.algorithm
    client = jax.eval_shape(lambda tree: trees.gather(tree, 0), clients)
    down = jax.eval_shape(algorithm.download, server, client)
    sent = jax.eval_shape(algorithm.local_update, down, client, ONE, RNG)
    views = jax.eval_shape(algorithm.personalize, server, client, ONE, RNG)
    found.append(Traced(stage, server, clients, client, down, *sent, views))
  return found


class Recorded(NamedTuple):
  """Rounds of a stage: states (server, clients) before and after."""

  stage: Stage
  before: Any
  after: Any
  history: list[dict]


@functools.cache
def recorded(name) -> list[Recorded]:
  states, runs = begin(stages_of(name)[0], DATA, KEY(1)), []
  for stage in stages_of(name):
    if runs:
      states = stage.initialize(*states, DATA)
    data, before, history = stage.prepare_data(states[0], DATA), states, []
    for _ in range(ROUNDS):
      *states, metrics = round_of(stage, clients_per_chunk=1)(
        *states, jnp.array(COHORT), data, KEY(2)
      )
      history.append(metrics)
    runs.append(Recorded(stage, before, tuple(states), history))
  return runs


def is_same(trees):
  """Return whether two trees have the same numbers."""
  return all(map(np.array_equal, *map(jax.tree.leaves, trees)))


def leaves_with(tree, parts):
  """Return {path: leaf} of the leaves below a folder of one of these names."""
  paths = [f'/{path}/' for path in trees.leaf_names(tree)]
  found = zip(paths, jax.tree.leaves(tree), strict=True)
  return {
    path: leaf
    for path, leaf in found
    if any(f'/{part}/' in path for part in parts)
  }


# ---- What a file states ------------------------------------------------------


@every_method()
def test_file_declares_its_parts(name):
  module = load(name)
  assert isinstance(module.FEDAVG_EQUIVALENT, dict | None)  # None: never
  assert set(module.FEDAVG_EQUIVALENT or ()) <= set(own_defaults(name))
  assert isinstance(module.PRIVATE_LEAVES, tuple)
  assert all(isinstance(path, str) and path for path in module.PRIVATE_LEAVES)
  assert list(inspect.signature(module.build).parameters) == ['task', 'hp']
  text = module.__doc__
  assert any('<-' in line for line in text.splitlines()), 'no equation'
  assert 'Differs from the paper' in text
  assert paragraph(NEW_CLIENT, module), 'what does a new client do?'
  assert module.build(make_task(), module.HParams())


@every_method()
def test_stages_have_names_and_hand_out_training_data_alone(name):
  stages = stages_of(name)
  assert len({stage.name for stage in stages}) == len(stages)
  for stage in stages:
    assert stage.name and stage.rounds >= 1
    handed = inspect.signature(stage.algorithm.personalize).parameters.values()
    assert [one.name for one in handed] == ['server', 'client', 'data', 'rng']
    assert {one.kind for one in handed} == {inspect._POSITIONAL_OR_KEYWORD}
    assert all(one.default is one.empty for one in handed)


# ---- Shapes ------------------------------------------------------------------


@every_method()
def test_state_in_is_state_out(name):
  for shapes in traced(name):
    assert kinds(shapes.after) == kinds(shapes.client)
    assert trees.num_bytes((shapes.up, shapes.client)) > 0
    uploads = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct((3, *leaf.shape), leaf.dtype), shapes.up
    )
    senders = all_send(jnp.arange(3), jnp.arange(3), DATA)._replace(rng=RNG)
    aggregate = functools.partial(
      shapes.stage.algorithm.aggregate, senders=senders
    )
    after = jax.eval_shape(aggregate, shapes.server, uploads)
    assert kinds(after) == kinds(shapes.server)
  # A client that comes later has such a state, from the server's alone; all
  # views follow from that.
  first = functools.partial(first_state, shapes.stage)
  late = jax.eval_shape(first, shapes.server, ONE, RNG)
  assert kinds(late) == kinds(shapes.client)


@every_method()
def test_views_predict_the_classes(name):
  x = jnp.zeros((BATCH, *SHAPE))
  for shapes in traced(name):
    algorithm, views = shapes.stage.algorithm, {**shapes.views}
    assert shapes.metrics['loss'].shape == ()  # the runner reports it
    assert views
    assert 'global' not in views  # metrics have that word for the whole tests
    if algorithm.global_model is not None:
      views['global'] = jax.eval_shape(algorithm.global_model, shapes.server)
    for view in views.values():
      logits = jax.eval_shape(algorithm.predict, view, x, jnp.ones(BATCH))
      assert logits.shape == (BATCH, CLASSES)
      assert jnp.issubdtype(logits.dtype, jnp.floating)
  *_, (last, *states) = stage_shapes(build(name, outline(make_task())), DATA)
  names = evaluate.view_names(last.algorithm, *states, DATA)
  assert names == (*shapes.views,)


@every_method()
def test_private_leaves_are_not_in_the_messages(name):
  """Of the method itself: a stage before it may be another's.

  A client that has its own does not download the server's, either. 'body' is
  what is not the head: a folder of that name in the task of the tests, all
  other layers in a real model.
  """
  shapes = traced(name)[-1]
  for part in private_names(load(name).PRIVATE_LEAVES, make_task()):
    assert not leaves_with(shapes.up, [part])
    if leaves_with(shapes.client, [part]):
      assert not leaves_with(shapes.down, [part])
    states = shapes.server, shapes.clients
    assert leaves_with(states, [part]), f'no {part}'


# ---- Rounds ------------------------------------------------------------------


@every_method()
def test_three_rounds(name):
  """One clock; finite values; clients outside the cohort keep their bits."""
  assert 2 in COHORT and COUNTS[2] == 0 and len(OTHERS) >= 2
  assert recorded(name)[0].before[0].round == 0
  for run in recorded(name):
    (before, clients), (after, trained) = run.before, run.after
    assert before.round.shape == ()
    assert jnp.issubdtype(before.round.dtype, jnp.integer)
    assert after.round == before.round + ROUNDS
    assert trees.all_finite((run.after, run.history))
    assert_same_bits(*trees.gather((trained, clients), OTHERS))
  moved = jax.tree.map(
    lambda one, two: np.asarray(one).tobytes() != np.asarray(two).tobytes(),
    run.before,
    run.after,
  )
  assert sum(jax.tree.leaves(moved)) > 1  # more than the clock


@every_method()
def test_what_is_kept_changes_what_follows(name):
  """Put back to its start, it gives another round, or at least other views."""
  stage, (first, fresh), (server, clients), _ = recorded(name)[-1]
  data = stage.prepare_data(server, DATA)

  def outcomes(server, clients):
    yield round_of(stage, clients_per_chunk=1)(
      server, clients, jnp.array(COHORT), data, KEY(3)
    )[:2]
    client = trees.gather(clients, 0)
    yield jax.jit(stage.algorithm.personalize)(server, client, ONE, RNG)

  others = {'clients': (server, fresh)}
  for field in {*server._fields} - {'round', 'params'}:
    begun = server._replace(**{field: getattr(first, field)})
    others[field] = begun, clients
  for field, states in others.items():
    pairs = zip(outcomes(*states), outcomes(server, clients), strict=True)
    never_changed = is_same((states, (server, clients)))
    assert never_changed or not all(map(is_same, pairs)), field


@every_method()
def test_private_part_of_the_server_keeps_its_bits(name):
  """What is declared private may be frozen, or live with the clients.

  Of the last stage alone: one before it may be another method's.
  """
  (before, _), (after, _) = recorded(name)[-1][1:3]
  private = private_names(load(name).PRIVATE_LEAVES, make_task())
  assert_same_bits(leaves_with(after, private), leaves_with(before, private))


@every_method()
def test_a_cohort_without_any_example_gives_finite_values(name):
  """Weights n_i are all 0 then."""
  empty = DATA._replace(count=jnp.zeros_like(DATA.count))
  got = play(stages_of(name), empty, rounds=1, clients_per_chunk=1)
  assert trees.all_finite(got[:2])


# ---- How the engine runs it --------------------------------------------------


def without_tails(history, steps):
  """Cut what follows a client's last step: it is as long as the padding."""
  for metrics in history:
    assert not np.any(metrics['losses'][:, steps:])
  return [
    {name: value for name, value in metrics.items() if value.ndim == 1}
    for metrics in history
  ]


@every_method(2)
def test_cohort_order(name):
  order = np.array([3, 0, 4, 2, 1])
  cohort = tuple(np.array(COHORT)[order])
  options = {'cohort': cohort, 'clients_per_chunk': 1}
  *states, history = play(stages_of(name), DATA, ROUNDS, **options)
  assert_same_bits(tuple(states), recorded(name)[-1].after)
  want = [metrics for run in recorded(name) for metrics in run.history]
  for got, one in zip(history, want, strict=True):
    got, one = dict(got), dict(one)
    assert got.pop(SERVER_FINITE) and one.pop(SERVER_FINITE)
    assert_same_bits(got, trees.gather(one, order))


@every_method(1)
def test_chunk_and_twice_the_padding(name):
  """Two side by side, two, and one."""
  *states, history = play(stages_of(name), WIDE, ROUNDS, clients_per_chunk=2)
  assert_close(tuple(states), recorded(name)[-1].after)
  want = [metrics for run in recorded(name) for metrics in run.history]
  steps = want[0]['losses'].shape[1]  # the most of any client
  assert_close(without_tails(history, steps), without_tails(want, steps))


@every_method(0)
def test_twice_the_padding_of_personal_models(name):
  """By what they predict: a view may hold the examples themselves."""
  server, clients = recorded(name)[-1].after
  algorithm = stages_of(name)[-1].algorithm
  x, ones = make_task().normalise(DATA.x, RNG), jnp.ones(len(DATA.x))

  @jax.jit
  def predicted(client, data):
    views = algorithm.personalize(server, client, data, KEY(3))
    return {view: algorithm.predict(views[view], x, ones) for view in views}

  for i in (5, 1, 2):  # two batches, one example, none
    client = trees.gather(clients, i)
    want = predicted(client, client_of(DATA, i))
    assert_close(predicted(client, client_of(WIDE, i)), want)


@every_method(0)
def test_python_loop(name):
  # Every new operation compiles by itself there: few, then, of few shapes.
  train = TRAIN._replace(epochs=1, shuffle=False, weight_decay=0.0)
  stages = build(name, linear_task(), train=train)
  want = play(stages, DATA, rounds=1, cohort=(3, 2), clients_per_chunk=1)
  got = play(stages, DATA, rounds=1, cohort=(3, 2), backend='loop')
  assert_close(got, want)


def linear_task():
  def features(params, x, mask):
    return x.reshape(len(x), -1) @ params['body']['kernel']

  def logits(params, x, mask):
    return features(params, x, mask) @ params['head']['kernel']

  def loss(params, batch, key):
    return (batch.mask @ logits(params, batch.x, batch.mask)).sum()

  # As many classes as hidden units and pixels: two shapes of leaves, not four.
  return make_task(4, noise=0, classes=4)._replace(
    features=features, logits=logits, loss=loss
  )


# ---- With the hyperparameters of its FEDAVG_EQUIVALENT it is FedAvg ----------

TRAININGS = {
  'examples': TRAIN,
  'uniform': TRAIN._replace(aggregation='uniform', weight_decay=0.0),
}


@functools.cache
def fedavg(weights):
  """Return its model, of which three rounds have moved every leaf."""
  stages = build('fedavg', train=TRAININGS[weights])[:1]
  start, end = (play(stages, DATA, number)[0].params for number in (0, 3))
  moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), start, end)
  assert min(jax.tree.leaves(moved)) > 1e-2  # else who never learns is FedAvg
  return end


@pytest.mark.parametrize('weights', ['examples', long('uniform')])
@every_method()
def test_server_is_fedavgs(name, weights):
  """The first stage's params after three rounds."""
  when = load(name).FEDAVG_EQUIVALENT
  if when is None:
    pytest.skip('never FedAvg')
  hp = {'train': TRAININGS[weights], **when}
  server, _, _ = play(build(name, **hp)[:1], DATA, 3)
  want = fedavg(weights)
  # A server with models of several clusters has one of them then.
  got = jax.tree.map(lambda a, b: a.reshape(b.shape), server.params, want)
  assert_close(got, want)
