"""Scores of batches, of blocks of clients, of views.

Measures of one client: metrics_test.py. No model sees the tests:
privacy_test.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  COUNTS,
  KEY,
  TEST_COUNTS,
  assert_close,
  build,
  client_of,
  make_data,
  make_task,
  refused,
)
from small_runs import make_experiment

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.federated.rounds import init_states
from fedjax_pfl.training.program import Evaluator

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK = make_task()
TRAIN, TEST = make_data(), make_data(TEST_COUNTS, seed=1)
VIEWS = ('initial', 'finetuned')
ALGORITHM = build('fedavg')[0].algorithm
EVALUATE = make_evaluate(
  ALGORITHM, TASK.normalise, VIEWS, batch_size=4, keep_models=True
)


def test_views_and_chunks_are_checked():
  given = ALGORITHM, TASK.normalise, VIEWS
  message = refused(lambda: make_evaluate(*given, clients_per_chunk='auto'))
  assert message.startswith("clients_per_chunk: got 'auto'")
  evaluate = make_evaluate(ALGORITHM, TASK.normalise, ['finetund'], mesh=None)
  message = refused(evaluate, *states(), jnp.arange(1), TRAIN, TEST, KEY(0))
  assert '(did you mean finetuned?)' in message


@functools.cache
def states():
  return init_states(ALGORITHM, TRAIN, KEY(1))


@pytest.fixture(scope='module')
def found():
  """Return the scores of all clients, and their models."""
  blocks = []

  def keep(ids, models):
    blocks.append((ids.tolist(), models))

  given = VIEWS, *states(), TRAIN, TEST, KEY(5)
  scores = evaluate_clients(EVALUATE, *given, on_models=keep)
  ((ids, models),) = blocks
  assert ids == [*range(7)]
  return scores, models


def test_models_are_those_of_each_client(found):
  """From its own training data and the key fold_in(key, client)."""
  personalize = jax.jit(ALGORITHM.personalize)
  for i in range(len(COUNTS)):
    rng = jax.random.fold_in(KEY(5), i)
    want = personalize(states()[0], (), client_of(TRAIN, i), rng)
    got = trees.gather(found[1], i)
    assert_close(got, {view: want[view] for view in VIEWS})


def test_blocks_are_filled_up_and_cut():
  """Seven clients; the last block of three is 6, 0, 0."""
  progress, blocks = [], []

  def evaluate(server, clients, ids, train, test, key):
    scores = Scores(ids, test.count[ids], *[0.5 * ids] * 4)
    return {'only': scores}, {'only': ids + 1}

  scores = evaluate_clients(
    evaluate,
    ('only',),
    None,
    None,
    TRAIN,
    TEST,
    KEY(5),
    block=3,
    on_progress=progress.append,
    on_models=lambda ids, models: blocks.append((ids, models['only'])),
  )['only']
  assert progress == [3, 6, 7]
  assert blocks[2][0].tolist() == [6, 0, 0]
  assert all((models == ids + 1).all() for ids, models in blocks)
  assert scores.correct.tolist() == [*range(7)]
  assert scores.count.tolist() == list(TEST_COUNTS)


def test_a_sample_of_clients_is_evaluated():
  """With the scores that each has among all; the others have no tests."""

  def scores_of(experiment):
    evaluator = Evaluator(experiment, KEY(5))
    states = init_states(
      experiment.stages[0].algorithm, experiment.train, KEY(0)
    )
    return evaluator.clients(0, states, ['initial'])['initial']

  some = make_experiment(eval_clients=4, views=('initial',))
  ids = Evaluator(some, KEY(5)).evaluated(10)
  assert {0, 3} <= {*ids.tolist()} and 4 <= len(ids) <= 6
  every = scores_of(make_experiment(views=('initial',)))
  want = jax.tree.map(np.zeros_like, every)
  for leaf, row in zip(*map(jax.tree.leaves, (want, every)), strict=True):
    leaf[ids] = row[ids]
  got = scores_of(some)
  assert_close(got, want)
  assert summarise(got)['num_clients'] == len(ids)
