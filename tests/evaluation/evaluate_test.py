"""Scores of batches, of blocks of clients, of views."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  CLASSES,
  COUNTS,
  KEY,
  TEST_COUNTS,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  make_data,
  make_task,
)

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Scores
from fedjax_pfl.data import partition, stack_clients
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.evaluate import (
  check_views,
  evaluate_clients,
  make_evaluate,
  view_names,
)
from fedjax_pfl.evaluation.metrics import score_classes, score_view
from fedjax_pfl.federated.rounds import init_states

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK = make_task()
PARAMS = TASK.init(KEY(7))
TRAIN, TEST = make_data(), make_data(TEST_COUNTS, seed=1)
VIEWS = ('initial', 'finetuned')


# ---- one view of one client ------------------------------------------------


def numpy_logits(params, x):
  """Compute the model of `make_task` on one batch, in numpy."""
  p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  z = (x.reshape(len(x), -1) / 255 - 0.5) @ p['body']['kernel']
  z = z + p['body']['bias']
  f = np.tanh((z - z.mean(0)) / np.sqrt(z.var(0) + 0.1) + p['body']['bias'])
  return f @ p['head']['kernel'] + p['head']['bias']


@pytest.mark.parametrize('count', [300, 128, 5, 1])
def test_score_against_numpy(count):
  """300 = 128 + 128 + 44: each batch is normalised by itself."""
  data = client_of(make_data((count, 300), seed=2), 0)
  places = jnp.arange(300)  # padding of all kinds: right and wrong answers
  index = jnp.where(places < count, data.index, places % len(data.x))
  data = data._replace(index=index)
  got = score_view(TASK.logits, PARAMS, data, TASK.normalise)
  rows = np.asarray(data.index[:count])
  x, y = np.asarray(data.x)[rows], np.asarray(data.y)[rows]
  batches = np.split(x, range(128, count, 128))
  logits = np.concatenate([numpy_logits(PARAMS, batch) for batch in batches])
  assert got.correct == (logits.argmax(1) == y).sum()
  assert got.count == count
  log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
  losses = -log_p[np.arange(count), y]
  np.testing.assert_allclose(got.loss, losses.mean(), rtol=1e-5)


def test_classes_against_numpy():
  """Correct predictions and examples, class by class; 10 = 4 + 4 + 2."""
  data = client_of(make_data((10, 12), seed=2), 0)
  got = score_classes(CLASSES, TASK.logits, PARAMS, data, TASK.normalise, 4)
  rows = np.asarray(data.index[:10])
  x, y = np.asarray(data.x)[rows], np.asarray(data.y)[rows]
  guess = [numpy_logits(PARAMS, x[i : i + 4]).argmax(1) for i in (0, 4, 8)]
  hit = np.concatenate(guess) == y
  assert 0 < hit.sum() < 10
  assert got.count.tolist() == np.bincount(y, minlength=CLASSES).tolist()
  assert got.correct.tolist() == np.bincount(y[hit], minlength=CLASSES).tolist()


def test_client_without_tests_scores_nothing():
  data = client_of(TEST, TEST_COUNTS.index(0))
  got = score_view(TASK.logits, PARAMS, data, TASK.normalise)
  assert (got.correct, got.count, got.loss) == (0, 0, 0)


def test_all_classes_compete():
  """A class that no test example has is still predicted, and wrong."""
  data = TEST._replace(y=jnp.ones_like(TEST.y))

  def predict(view, x, mask):
    return jnp.tile(jnp.array([0.0, 1.0, 2.0]), (len(x), 1))

  got = score_view(predict, (), client_of(data, 0), TASK.normalise)
  assert (got.correct, got.count) == (0, 3)


@pytest.mark.parametrize('shards, deviation', [(10, 3.1), (50, 1.4)])
def test_constant_predictor(shards, deviation):
  """100 clients, 100 classes: 1.00 % on average, with a deviation.

  A client's hits are its shards of the one class: binomial, whose deviation
  is sqrt(s * 0.01 * 0.99) shards of 100 / s images.
  """
  y = np.repeat(np.arange(100), 100)
  train, test = partition(
    'shards',
    y,
    y,
    num_clients=100,
    num_classes=100,
    shards_per_client=shards,
    seed=0,
  )
  assert len(train) == len(test) == 100
  images = Images(np.zeros((len(y), 1, 1, 1), np.uint8), y)
  data = stack_clients(images, test)

  def predict(view, x, mask):
    return jnp.tile(jax.nn.one_hot(17, 100), (len(x), 1))

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(0, 0))
  def score(index, count):
    one = data._replace(index=index, count=count)
    return score_view(predict, (), one, lambda x, key: x.astype(float))

  scores = score(data.index, data.count)
  accuracy = 100 * np.asarray(scores.correct) / np.asarray(scores.count)
  np.testing.assert_allclose(accuracy.mean(), 1.0)
  np.testing.assert_allclose(accuracy.std(), deviation, atol=0.3)


# ---- all views of all clients ----------------------------------------------


@functools.cache
def fedavg():
  """Return the algorithm, and its states before the first round."""
  algorithm = build('fedavg')[0].algorithm
  return (algorithm, *init_states(algorithm, TRAIN, KEY(1)))


def evaluate(test=TEST, **options):
  """Return the scores of all clients, and the ids and models of each block."""
  _, server, clients = fedavg()
  blocks = []
  scores = evaluate_clients(
    evaluate_fn(),
    VIEWS,
    server,
    clients,
    TRAIN,
    test,
    KEY(5),
    block=7,
    on_models=lambda *args: blocks.append(args),
    **options,
  )
  return scores, blocks


@functools.cache
def evaluate_fn():
  return make_evaluate(
    fedavg()[0], TASK.normalise, VIEWS, batch_size=4, keep_models=True
  )


def test_models_are_those_of_each_client():
  """From its own training data and the key fold_in(key, client)."""
  _, [(ids, models)] = evaluate()
  algorithm, server, _ = fedavg()
  assert ids.tolist() == [*range(7)]
  assert set(models) == set(VIEWS)
  personalize = jax.jit(algorithm.personalize)
  for i in range(len(COUNTS)):
    rng = jax.random.fold_in(KEY(5), i)
    want = personalize(server, (), client_of(TRAIN, i), rng)
    got = trees.gather(models, i)
    assert_close(got, {view: want[view] for view in VIEWS})


def test_scores_are_those_of_the_models_on_the_clients_tests():
  scores, [(_, models)] = evaluate()
  for view in VIEWS:
    for i, count in enumerate(TEST_COUNTS):
      rows = np.asarray(TEST.index[i, :count])
      x, y = np.asarray(TEST.x)[rows], np.asarray(TEST.y)[rows]
      batches = np.split(x, range(4, count, 4))
      model = trees.gather(models[view], i)
      hits = [numpy_logits(model, b).argmax(1) for b in batches if len(b)]
      hits = np.concatenate([*hits, []])
      assert scores[view].correct[i] == (hits == y).sum()
      assert scores[view].count[i] == count


def test_models_do_not_depend_on_the_test_set():
  other = TEST._replace(x=255 - TEST.x, y=(TEST.y + 1) % CLASSES)
  (scores, blocks), (other_scores, other_blocks) = evaluate(), evaluate(other)
  assert_same_bits(blocks, other_blocks)
  assert (scores['initial'].loss != other_scores['initial'].loss).any()


def test_scores_come_in_the_order_of_the_views():
  assert list(evaluate()[0]) == list(VIEWS)


@pytest.mark.parametrize('block', [1, 2, 3, 7, 10])
def test_blocks_are_filled_up_and_cut(block):
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
    block=block,
    on_progress=progress.append,
    on_models=lambda ids, models: blocks.append((ids.tolist(), models)),
  )
  size = min(block, 7)
  assert progress == [*range(size, 7, size), 7]
  ids = [i for ids, _ in blocks for i in ids]
  assert ids == [*range(7)] + [0] * (len(ids) - 7)
  assert all(len(ids) == size for ids, _ in blocks)
  assert all((models['only'] == np.add(ids, 1)).all() for ids, models in blocks)
  assert all(isinstance(leaf, np.ndarray) for leaf in scores['only'][:6])
  assert scores['only'].own is None
  assert scores['only'].correct.tolist() == [*range(7)]
  assert scores['only'].count.tolist() == list(TEST_COUNTS)


def test_view_names():
  algorithm, server, clients = fedavg()
  names = view_names(algorithm, server, clients, TRAIN)
  assert set(names) == {
    'initial',
    'finetuned_1',
    'finetuned',
    'local_update',
    'templates_euclidean',
    'templates_cosine',
  }
  check_views(VIEWS, names)


def test_unknown_view():
  with pytest.raises(BadInput, match=r'did you mean finetuned\?') as error:
    check_views(('initial', 'finetuned_5'), VIEWS)
  sentence = str(error.value)
  assert sentence.startswith("view: got 'finetuned_5', expected a view of")
  assert 'Choices: initial, finetuned' in sentence
