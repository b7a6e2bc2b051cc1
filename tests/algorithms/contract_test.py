"""What every method promises, checked for each file in algorithms/.

Methods are found, never named: a new file is held to all of this at once.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  BATCH,
  CLASSES,
  COHORT,
  KEY,
  SHAPE,
  assert_same_bits,
  build,
  client_of,
  every_method,
  make_data,
  make_task,
  play,
  round_of,
)

from fedjax_pfl.algorithms import load
from fedjax_pfl.analysis.method_table import NEW_CLIENT
from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.evaluation.new_clients import first_state, with_new_clients
from fedjax_pfl.federated import communication
from fedjax_pfl.federated.cohort import all_send
from fedjax_pfl.federated.rounds import begin, make_round, stage_shapes
from fedjax_pfl.models.outline import outline

DATA = make_data()
ONE = client_of(DATA, 0)
RNG = KEY(0)

pytestmark = pytest.mark.usefixtures('quick_compiler')
stages_of = functools.cache(build)
# As invariance_test compiles its rounds: what one has compiled serves both.
with_64_bits = pytest.mark.usefixtures('float64')


def kinds(tree):
  """Return the tree with shapes and dtypes in the place of its arrays."""
  return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)


def row_of(clients):
  return jax.eval_shape(lambda tree: trees.gather(tree, 0), clients)


def message_of(algorithm, server, client):
  """Return the shapes of what local_update returns: client, up, metrics."""
  down = jax.eval_shape(algorithm.download, server, client)
  return jax.eval_shape(algorithm.local_update, down, client, ONE, RNG)


@every_method()
def test_file_declares_its_parts(name):
  module = load(name)
  assert isinstance(module.FEDAVG_EQUIVALENT, dict | None)  # None: never
  assert set(module.FEDAVG_EQUIVALENT or ()) <= set(module.HParams._fields)
  assert isinstance(module.PRIVATE_LEAVES, tuple)
  assert all(isinstance(path, str) and path for path in module.PRIVATE_LEAVES)
  assert list(inspect.signature(module.build).parameters) == ['task', 'hp']


@every_method()
def test_docstring_has_the_equation_and_the_deviations(name):
  text = load(name).__doc__
  assert any('<-' in line for line in text.splitlines()), 'no equation'
  assert 'Differs from the paper' in text


@every_method()
def test_a_client_that_comes_later_is_like_the_others(name):
  """It has a state of the same kind, from the server's alone, and all views."""
  assert NEW_CLIENT.search(load(name).__doc__), 'what does a new client do?'
  *_, (stage, server, clients) = stage_shapes(build(name), DATA)
  client, algorithm = row_of(clients), stage.algorithm
  state_fn = functools.partial(first_state, stage)
  own = jax.eval_shape(state_fn, server, ONE, RNG)
  assert kinds(own) == kinds(client)
  views = jax.eval_shape(algorithm.personalize, server, client, ONE, RNG)
  new = with_new_clients(stage).algorithm
  assert kinds(views) == kinds(
    jax.eval_shape(new.personalize, server, (), ONE, RNG)
  )


@every_method()
def test_hyperparameters_have_defaults(name):
  module = load(name)
  hp = module.HParams()
  assert isinstance(hp.train, local_training.LocalTraining)
  assert isinstance(hp.finetune, personalization.Finetuning)
  stages = module.build(make_task(), hp)
  *functions, global_model = stages[0].algorithm
  assert all(callable(part) for part in functions)
  assert global_model is None or callable(global_model)


@every_method()
def test_build_returns_stages(name):
  stages = build(name)
  assert isinstance(stages, tuple) and stages
  for stage in stages:
    assert isinstance(stage, Stage) and isinstance(stage.algorithm, Algorithm)
    assert stage.name and stage.rounds >= 1 and callable(stage.initialize)
  assert len({stage.name for stage in stages}) == len(stages)


@every_method()
def test_every_function_traces(name):
  x = jnp.zeros((BATCH, *SHAPE))
  for stage, server, clients in stage_shapes(build(name), DATA):
    algorithm, client = stage.algorithm, row_of(clients)
    jax.eval_shape(algorithm.init_server, RNG)
    jax.eval_shape(algorithm.init_client, server, ONE, RNG)
    _, _, metrics = message_of(algorithm, server, client)
    assert metrics['loss'].shape == ()  # the runner reports and checks it
    views = jax.eval_shape(algorithm.personalize, server, client, ONE, RNG)
    assert views
    assert 'global' not in views  # metrics have that word for the whole tests
    if algorithm.global_model is not None:
      views['global'] = jax.eval_shape(algorithm.global_model, server)
    for view in views.values():
      logits = jax.eval_shape(algorithm.predict, view, x, jnp.ones(BATCH))
      assert logits.shape == (BATCH, CLASSES)
      assert jnp.issubdtype(logits.dtype, jnp.floating)


@every_method()
def test_an_outline_of_the_model_has_the_same_views(name):
  task = make_task()
  names = []
  for model in (task, outline(task)):
    *_, (last, *states) = stage_shapes(build(name, model), DATA)
    names.append(evaluate.view_names(last.algorithm, *states, DATA))
  assert names[0] == names[1]


@pytest.mark.long
@every_method()
def test_bytes_are_noted_while_a_round_is_traced(name):
  for stage, server, clients in stage_shapes(build(name), DATA):
    data = jax.eval_shape(stage.prepare_data, server, DATA)
    counted = communication.count(stage, server, clients, DATA)
    watched, bytes_of = communication.count_in_trace(stage, server)
    round_fn = make_round(watched.algorithm, clients_per_chunk=2)
    cohort = jnp.array(COHORT)
    jax.eval_shape(round_fn, server, clients, cohort, data, RNG)
    assert bytes_of() == counted


@every_method()
def test_a_client_uploads_or_keeps_parameters(name):
  for stage, server, clients in stage_shapes(build(name), DATA):
    client, up, _ = message_of(stage.algorithm, server, row_of(clients))
    assert trees.num_bytes(up) > 0 or trees.num_bytes(client) > 0


@every_method()
def test_state_in_is_state_out(name):
  for stage, server, clients in stage_shapes(build(name), DATA):
    client, up, _ = message_of(stage.algorithm, server, row_of(clients))
    assert kinds(client) == kinds(row_of(clients))
    uploads = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct((3, *leaf.shape), leaf.dtype), up
    )
    ids = jnp.arange(3)
    after = jax.eval_shape(
      lambda server, up, own=stage.algorithm, ids=ids: own.aggregate(
        server, up, all_send(ids, ids, DATA)
      ),
      server,
      uploads,
    )
    assert kinds(after) == kinds(server)
    assert jax.tree.structure(after) == jax.tree.structure(server)


@with_64_bits
@every_method()
def test_one_clock_advances_by_one(name):
  for stage, server, _ in stage_shapes(stages_of(name), DATA):
    clock = server.round
    assert clock.shape == () and jnp.issubdtype(clock.dtype, jnp.integer)
    assert stage.rounds >= 1
  stages = stages_of(name)
  server, clients = begin(stages[0], DATA, KEY(1))
  assert server.round == 0
  round_fn = round_of(stages[0])
  for number in (1, 2, 3):
    cohort = jnp.array(COHORT)
    server, clients, _ = round_fn(server, clients, cohort, DATA, KEY(2))
    assert server.round == number


@with_64_bits
@every_method()
def test_clients_outside_the_cohort_keep_their_bits(name):
  stages = stages_of(name)
  _, before = begin(stages[0], DATA, KEY(1))
  _, after, _ = play(stages[:1], DATA, rounds=1, seed=1)
  others = np.setdiff1d(np.arange(len(DATA.count)), COHORT)
  assert len(others) >= 2
  assert_same_bits(trees.gather(after, others), trees.gather(before, others))


@every_method()
def test_private_leaves_are_not_in_the_upload(name):
  """Of the method itself: a stage before it may be another's.

  'body' is what is not the head: a folder of that name in the task of the
  tests, all other layers in a real model.
  """
  *_, (stage, server, clients) = stage_shapes(build(name), DATA)
  _, up, _ = message_of(stage.algorithm, server, row_of(clients))
  sent = [f'/{path}/' for path in trees.leaf_names(up)]
  kept = [f'/{path}/' for path in trees.leaf_names((server, clients))]
  for part in load(name).PRIVATE_LEAVES:
    assert not [path for path in sent if f'/{part}/' in path]
    assert [path for path in kept if f'/{part}/' in path], f'no {part}'


@every_method()
def test_personalize_is_handed_training_data_alone(name):
  for stage in build(name):
    signature = inspect.signature(stage.algorithm.personalize)
    names = list(signature.parameters)
    assert names == ['server', 'client', 'data', 'rng']
    assert all(
      parameter.kind is parameter.POSITIONAL_OR_KEYWORD
      and parameter.default is parameter.empty
      for parameter in signature.parameters.values()
    )


@with_64_bits
@every_method()
def test_a_cohort_without_any_example_gives_finite_values(name):
  """Weights n_i are all 0 then."""
  empty = DATA._replace(count=jnp.zeros_like(DATA.count))
  server, clients, _ = play(stages_of(name), empty, rounds=1)
  for leaf in jax.tree.leaves((server, clients)):
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      assert jnp.isfinite(leaf).all()
