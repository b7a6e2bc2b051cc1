"""What a method cannot see: tests, other clients' data, and private leaves.

By poison. All examples lie in one pool; a second run of the same seed is told
to test on rows that are not numbers, with other labels. What training leaves
behind, and the personal models, keep their bits. Methods are found, never
named.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  ALGORITHMS,
  KEY,
  TRAIN,
  assert_same_bits,
  build,
  client_of,
  every_method,
  make_data,
  make_task,
)
from small_runs import make_experiment, make_settings
from small_runs import models_of as models_saved

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import optimisers
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import private_names
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.federated.rounds import begin
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config, to_config
from fedjax_pfl.training.finalize import finalize
from fedjax_pfl.training.loop import run_rounds
from fedjax_pfl.training.program import Evaluator, Program
from fedjax_pfl.training.state import State, random_streams, start_training

pytestmark = pytest.mark.usefixtures('quick_compiler')
SETTINGS = {
  'rounds': 2,
  'log_every': 2,
  'eval_every': 2,
  'checkpoint_every': 2,
  'eval_views': (),
  'max_train_examples': 60,
  'num_clients': 6,
  'shards_per_client': 5,
  'client_fraction': 0.5,
  'save_clients': (),
}
ODD = np.arange(SETTINGS['num_clients']) % 2 == 1


@pytest.fixture(scope='module')
def poisoned(quick_compiler):
  """Return an experiment, and the same with poison where its tests are.

  Both see one pool: training examples, tests, and tests that are no numbers.
  """
  return with_poison(make_experiment(**SETTINGS))


def with_poison(experiment):
  train, test = experiment.train, experiment.test
  x = np.concatenate([train.x, test.x, test.x]).astype(np.float32)
  x[-len(test.y) :] = np.nan
  y = jnp.concatenate([train.y, test.y, (test.y + 1) % 10])
  clean, poison = (
    ClientData(x, y, test.index + len(train.y) + more, count)
    for more, count in ((0, test.count), (len(test.y), test.count + 1))
  )
  pool = {'x': jnp.asarray(x), 'y': y}
  experiment = experiment.with_data(train=train._replace(**pool), test=clean)
  if validation := experiment.data.splits.get('validation'):
    experiment = experiment.with_data(validation=validation._replace(**pool))
  return experiment, experiment.with_data(test=poison)


def experiments_of(poisoned, name, **changes):
  """Return both experiments with another method, all its views evaluated."""
  settings = parse_config(
    make_settings(**{**SETTINGS, 'algorithm': name, **changes})
  )
  found = []
  for one in poisoned:
    stages = tuple(
      stage._replace(rounds=min(stage.rounds, SETTINGS['rounds']))
      for stage in one.stages_of(settings)
    )
    outline = one.outline._replace(settings=settings)
    found.append(one._replace(outline=outline, stages=stages))
  return found


def run(experiments, folder, program=None):
  """Return the trainings of the experiments after their last round."""
  program = program or Program(experiments[0])
  runs = [
    run_dir.open_run(
      folder / str(number), to_config(one.settings), data='', log=print
    )
    for number, one in enumerate(experiments)
  ]
  return [
    run_rounds(start_training(one, opened, program))
    for one, opened in zip(experiments, runs, strict=True)
  ]


def models_of(experiment, state, views, program):
  """Return {view: models [K]} as the runner's evaluate shows them."""
  kept = {}
  key = random_streams(experiment.settings.seed)['evaluation']
  scores = Evaluator(experiment, key, program).clients(
    len(experiment.stages) - 1,
    (state.server, state.clients),
    views,
    on_models=lambda ids, models: kept.update(models),
  )
  return jax.tree.map(np.asarray, kept), scores


def poison_rows(tree, rows):
  """Return the tree with numbers that are none in these rows."""

  def spoil(leaf):
    leaf = np.array(leaf)
    leaf[rows] = np.nan if leaf.dtype.kind == 'f' else leaf[rows]
    return leaf

  return jax.tree.map(spoil, tree)


def assert_finite(tree):
  for leaf in jax.tree.leaves(tree):
    assert np.isfinite(np.asarray(leaf)).all()


@every_method(1)
def test_neither_tests_nor_data_of_other_clients_are_used(
  name, poisoned, tmp_path
):
  experiments = experiments_of(poisoned, name)
  one, two = run(experiments, tmp_path)
  assert_same_bits(two.state[:2], one.state[:2])
  assert_finite(two.state[:2])

  last, (server, clients) = one.experiment.stages[-1], one.state[:2]
  views = view_names(last.algorithm, server, clients, one.experiment.train)
  program = one.program
  models, scores = models_of(experiments[0], one.state, views, program)
  got, other_scores = models_of(experiments[1], two.state, views, program)
  assert_same_bits(got, models)
  assert_finite(got)
  for view in views:
    assert not np.isfinite(other_scores[view].loss).any()
    assert np.isfinite(scores[view].loss).all()

  # Every other client has lost its data and its state; the server has not.
  train = experiments[0].train
  spoilt = experiments[0].with_data(
    train=train._replace(
      index=jnp.where(ODD[:, None], len(train.y) - 1, train.index),
      count=jnp.where(ODD, 1, train.count),
    )
  )
  state = one.state._replace(clients=poison_rows(clients, ODD))
  got, _ = models_of(spoilt, state, views, program)
  assert_same_bits(trees.gather(got, ~ODD), trees.gather(models, ~ODD))


CHOOSING = {
  'validation_fraction': 0.3,
  'select': 'validation',
  'rounds': 3,
  'eval_every': 1,
  'checkpoint_every': 3,
  'save_clients': (0, 3),
  'learning_rate': 0.3,
}


@pytest.fixture(scope='module')
def choosing(quick_compiler):
  """Return both experiments that choose a round, and their compiled program."""
  pair = with_poison(make_experiment(**SETTINGS, validation_fraction=0.3))
  experiments = experiments_of(pair, 'fedbabu', **CHOOSING)
  return experiments, Program(experiments[0])


def test_no_test_reaches_a_choice(choosing, tmp_path):
  """Neither the chosen round and view, nor their models."""
  experiments, program = choosing
  one, two = run(experiments, tmp_path, program)
  assert_same_bits(two.state.chosen, one.state.chosen)
  assert_finite(one.state.chosen)
  for training in (one, two):
    finalize(training)
  results = [run_dir.load_result(tmp_path / place) for place in '01']
  choices = [result['validation'] for result in results]
  for what in ('round', 'view', 'validation_accuracy'):
    assert choices[0][what] == choices[1][what]
  assert choices[0]['views'] != choices[1]['views']
  differ = [own for own in results[0] if results[0][own] != results[1][own]]
  wanted = {'views', 'last', 'validation', 'test_best_view'}
  assert set(differ) - {'seconds'} <= wanted
  assert_same_bits(*[models_saved(tmp_path / place) for place in '01'])


def test_no_validation_example_reaches_training(choosing, tmp_path):
  """Only what is chosen depends on them."""
  (experiment, _), program = choosing
  validation = experiment.data.splits['validation']
  bad = len(experiment.test.y)  # the last so many rows are no numbers
  poison = validation._replace(
    index=jnp.full_like(validation.index, len(validation.y) - bad)
  )
  experiments = [experiment, experiment.with_data(validation=poison)]
  one, two = run(experiments, tmp_path, program)
  assert_same_bits(two.state[:2], one.state[:2])
  assert_finite(two.state[:2])
  assert_finite(two.state.chosen[3:])
  assert two.state.chosen.accuracy != one.state.chosen.accuracy


def test_clients_adapt_on_one_half_of_their_tests_alone(poisoned):
  """With adapt_on=test_half: that half, never the half of the evaluation."""
  experiment, _ = experiments_of(poisoned, 'fedbabu', adapt_on='test_half')
  server, clients = begin(experiment.stages[0], experiment.train, KEY(0))
  state = State(server, clients, np.zeros(()))
  test, bad = experiment.test, len(experiment.test.y) - 1
  views = 'initial', 'finetuned', 'templates_cosine'
  program = Program(experiment)

  def models(index):
    changed = experiment.with_data(test=test._replace(index=index))
    return models_of(changed, state, views, program)[0]

  want, odd = models(test.index), np.arange(test.index.shape[1]) % 2 == 1
  assert_same_bits(models(jnp.where(odd, test.index, bad)), want)
  got = models(jnp.where(odd, bad, test.index))
  assert_same_bits(got['initial'], want['initial'])
  adapts = np.asarray(test.count) >= 2
  assert adapts.sum() > 3
  kernel = got['finetuned']['body']['kernel']
  means = got['templates_cosine'].model.means
  for rows in (kernel, means):
    assert (np.isnan(rows).any((1, 2)) == adapts).all()


# ---- private leaves --------------------------------------------------------

DATA = make_data()
MOST, NONE = 4, 2  # clients with the most examples, and with none


def mark(tree, private, fill):
  """Return the tree with fill(leaf) for its private leaves, and a list of them.

  The list is of what they were.
  """
  leaves, structure = jax.tree.flatten(tree)
  names = [f'/{name}/' for name in trees.leaf_names(tree)]
  found = []
  for place, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    if floating and any(f'/{part}/' in name for part in private):
      found.append(leaf)
      leaves[place] = jnp.asarray(fill(leaf), leaf.dtype)
  return jax.tree.unflatten(structure, leaves), found


def numbers_of(tree):
  """Return the set of all floats in a tree."""
  return {
    number
    for leaf in jax.tree.leaves(tree)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
    for number in np.ravel(leaf).tolist()
  }


@every_method(3, [m for m in ALGORITHMS if load(m).PRIVATE_LEAVES])
def test_uploads_do_not_depend_on_private_leaves(name):
  """Of the method itself: a stage before it may be another's.

  A client without examples takes no step: what it sends then does not depend
  on its private leaves at all. One that trains sends none of their numbers,
  neither of those before nor of those after.
  """
  # With 0.2 and its lam = 5, what pFedMe sends is theta itself, bit by bit:
  # w - eta lam (w - theta), and eta lam = 1.
  train = TRAIN._replace(learning_rate=optimisers.step_schedule(0.15, 3))
  stages = build(name, train=train)
  private = private_names(load(name).PRIVATE_LEAVES, make_task())
  server, clients = begin(stages[0], DATA, KEY(0))
  for stage in stages[1:]:
    server, clients = stage.initialize(server, clients, DATA)
  algorithm = stages[-1].algorithm

  @jax.jit
  def send(states, count):
    server, client = states
    one = client_of(DATA, MOST)._replace(count=count)
    down = algorithm.download(server, client)
    return algorithm.local_update(down, client, one, KEY(1))[:2]

  rng, states = np.random.default_rng(0), (server, trees.gather(clients, MOST))

  def noise(leaf):
    return rng.standard_normal(leaf.shape)

  marked, _ = mark(states, private, noise)
  spoilt, _ = mark(states, private, lambda leaf: np.nan * leaf)
  _, want = send(marked, DATA.count[NONE])
  _, up = send(spoilt, DATA.count[NONE])
  assert_same_bits(up, want)
  assert_finite(up)

  client, up = send(marked, DATA.count[MOST])
  _, before = mark(marked, private, noise)
  _, after = mark(client, private, noise)
  assert before
  assert not numbers_of(up) & numbers_of((before, after)) - {0.0}
