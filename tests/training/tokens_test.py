"""Labels for each token: losses, scores and methods; and whole runs."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_play
from helpers import KEY, build, client_of, every_method, refused

import fedjax_pfl as pfl
from fedjax_pfl.algorithms import fedpac, load
from fedjax_pfl.core.types import Batch
from fedjax_pfl.data.batching import fold_examples, num_labels
from fedjax_pfl.data.client_data import label_counts, label_counts_of_clients
from fedjax_pfl.data.preparation.prepare import prepare
from fedjax_pfl.evaluation.evaluate import make_evaluate, view_names
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.evaluation.own_metrics import with_metrics
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.results.tables.result_table import table
from fedjax_pfl.training.build import build_experiment

pytestmark = pytest.mark.usefixtures('quick_compiler')
L, Y = 6, 5
NONE = -1


class Words(nn.Module):
  pools: bool = False

  def setup(self):
    self.embed, self.norm = nn.Embed(Y, 4), nn.LayerNorm()
    self.head = nn.Dense(Y)

  def features(self, x, mask):
    assert mask.shape == x.shape[:1]
    x = self.norm(jnp.cumsum(self.embed(x), axis=1))
    return x.mean(axis=1) if self.pools else x


def make(pools=False, **own):
  """Return a task and clients with 3 and 5 texts; some tokens have no label.

  If it pools, a text has one label.
  """
  sizes = {'image_shape': (L,), 'num_classes': Y, 'input_dtype': int}
  task = pfl.task_from_module(Words(pools), **sizes, **own)
  rng = np.random.default_rng(0)
  xs = [rng.integers(0, Y, (n, L)) for n in (3, 5)]
  ys = [rng.integers(NONE, Y, (n, L)) for n in (3, 5)]
  ys = [abs(y[:, 0]) for y in ys] if pools else ys
  return task, pfl.from_arrays(xs, ys), (xs, ys)


def rows_by_hand(task, params, x, y):
  """Return the log-probability of each label, and whether it is largest."""
  logits = np.asarray(jax.jit(task.logits)(params, x, jnp.ones(y.size)))
  real = y.ravel() >= 0
  log_p = np.asarray(jax.nn.log_softmax(logits))[real]
  own = log_p[np.arange(real.sum()), y.ravel()[real]]
  return own, log_p.argmax(1) == y.ravel()[real]


def test_losses_and_scores_count_labels_alone():
  task, data, (xs, ys) = make()
  params = task.init(KEY(0))
  own, hit = rows_by_hand(task, params, xs[0], ys[0])
  client = client_of(data, 0)  # padded to 5 texts
  x, y = data.x[client.index], data.y[client.index]

  def step(total, batch):
    return total + batch.mask.sum() * task.loss(params, batch, KEY(1))

  fold = jax.jit(fold_examples, static_argnums=(0, 3, 5))
  total = fold(step, 0.0, client, task.normalise, KEY(0), 2)
  np.testing.assert_allclose(total, -own.sum(), rtol=1e-4)

  def metric(logits, labels, mask):
    return (mask * (logits.argmax(1) == labels)).sum()

  score = with_metrics(score_view, {'hits': metric})
  score = jax.jit(score, static_argnums=(0, 3, 4))
  scores = score(task.logits, params, client, task.normalise, 2)
  assert (scores.count, scores.correct) == (len(own), hit.sum())
  assert scores.count == num_labels(client) < x.size and scores.own['hits'] == (
    hit.sum()
  )
  np.testing.assert_allclose(scores.loss, -own.mean(), rtol=1e-4)
  np.testing.assert_allclose(
    scores.own['bits_per_token'], -own.mean() / np.log(2), rtol=1e-4
  )
  np.testing.assert_allclose(
    scores.own['perplexity'], np.exp(-own.mean()), rtol=1e-4
  )
  counts = np.bincount(ys[0][ys[0] >= 0], minlength=Y)
  np.testing.assert_array_equal(label_counts(client, Y), counts)
  np.testing.assert_array_equal(label_counts_of_clients(data, Y)[0], counts)
  # A batch without a label has no loss.
  nothing = Batch(x[:2], y[:2].ravel(), jnp.zeros(2 * L))
  assert jax.jit(task.loss)(params, nothing, KEY(0)) == 0


def test_statistics_of_fedpac_are_of_labels():
  task, data, (xs, ys) = make()
  params = task.init(KEY(0))
  statistics = jax.jit(partial(fedpac.statistics, task, fedpac.HParams()))
  shares, *_ = statistics(params, client_of(data, 0), KEY(0))
  features = task.features(params, jnp.asarray(xs[0]), jnp.ones(3))
  mean = features[ys[0].ravel() >= 0].mean(0)
  np.testing.assert_allclose(shares.sum(0), mean, rtol=1e-4, atol=1e-6)


INSIDE = ('fedlc', 'fedrod', 'fedrs')  # they change the logits of the loss


@every_method(3)
def test_a_round_of_every_method_traces_with_a_loss_of_the_users_own(name):
  """A class is then that of the next token; each stage asks for the loss."""
  calls = []

  def loss(logits, labels):
    calls.append(logits.shape)
    return jnp.square(logits[:, 0] - labels)

  pools = getattr(load(name), 'ONE_LABEL', False)
  task, data, _ = make(pools, loss=loss)
  if name in INSIDE:
    assert 'changes the logits inside' in refused(build, name, task)
    task, data, _ = make()
  for stage, *states in stage_shapes(build(name, task), data):
    calls.clear()
    ready = jax.eval_shape(stage.prepare_data, states[0], data)
    round_fn = make_round(stage.algorithm, clients_per_chunk=1, mesh=None)
    *after, _ = jax.eval_shape(round_fn, *states, jnp.arange(2), ready, KEY(0))
    assert jax.tree.structure(after) == jax.tree.structure([*states])
    assert bool(calls) != (name in INSIDE), stage.name
    names = view_names(stage.algorithm, *states, data)
    evaluate = make_evaluate(stage.algorithm, task.normalise, names)
    scores, _ = jax.eval_shape(
      evaluate, *states, jnp.arange(2), data, data, KEY(0)
    )
    assert {*scores} == {*names}


SETTINGS = {
  'dataset': 'shakespeare',
  'model': 'char_lstm',
  'partition': 'natural',
  'num_clients': 2,
  'client_fraction': 1.0,
  'rounds': 2,
  'local_epochs': 1,
  'batch_size': 4,
  'finetune': {'epochs': (1,), 'batch_size': 4},
  'eval_views': (),
}


@pytest.fixture(scope='module')
def place(tmp_path_factory):
  folder = tmp_path_factory.mktemp('data')
  file = small_play.write(folder / 'play.txt')
  prepare(['shakespeare'], str(folder), str, text=file)
  return {'data_dir': str(folder)}


def test_a_run_on_a_play(place, tmp_path):
  changes = {**place, 'eval_views': ('initial',)}
  experiment = build_experiment({**SETTINGS, **changes})
  result = pfl.train(experiment, tmp_path / 'run')
  for view in ('initial', 'finetuned'):
    own = result['views'][view]
    np.testing.assert_allclose(own['bits_per_token'], own['loss'] / np.log(2))
    assert 1 < own['perplexity'] < 101 and own['num_clients'] == 2
  assert 'bits_per_token' in table([result])
  assert 0 < result['test_best']['initial']['each']['mean'] < 100


def test_an_unknown_symbol_is_refused(tmp_path):
  x = np.arange(8 * L).reshape(8, L) * 3
  file = tmp_path / 'own.npz'
  np.savez(file, inputs=x, labels=x % Y, num_classes=Y)
  change = {'dataset': 'npz', 'data_dir': str(file), 'partition': 'iid'}
  change['test_partition'] = 'split'
  message = refused(build_experiment, {**SETTINGS, **change})
  assert 'inputs from 0 to 141' in message and '0 to 99' in message


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'partition': 'shards'}, 'shards for shakespeare, whose tokens'),
    ({'algorithm': 'knn_per'}, 'knn_per for tokens with a label each'),
    ({'scoring': 'batches'}, 'expected exact for tokens with a label'),
    ({'dataset': 'digits'}, 'char_lstm: got (8, 8, 1), expected (length,)'),
  ],
)
def test_what_does_not_fit_is_refused(place, change, words):
  message = refused(build_experiment, {**SETTINGS, **place, **change})
  assert words in message
