"""Calibration errors, and the scores of mixed models over a grid of lambda."""

from functools import partial

import goldens
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation import calibration, choices
from fedjax_pfl.evaluation.metrics import SCORINGS
from fedjax_pfl.evaluation.summary import other_measures

NAMES = {'loss': 'ce'}  # what the case calls otherwise


def check_calibration(case):
  for name, settings in case['cases'].items():
    logits, y, confidence = case.given(
      f'{name}/logits', f'{name}/labels', f'{name}/confidence'
    )
    number = settings['n_bins']
    bins, ece, mce = in_two_batches(logits, y, number)
    case.check(f'{name}/ece', ece)
    case.check(f'{name}/mce', mce)
    np.testing.assert_allclose([ece, mce], [settings['ece'], settings['mce']])
    case.check(f'{name}/bin_counts', bins.count, exact=True)
    # Each bin is the sum of the confidences that the case puts there.
    sums, edges = np.zeros(number), np.arange(1, number) / number
    np.add.at(sums, np.searchsorted(edges, confidence), confidence)
    np.testing.assert_allclose(bins.confidence, sums, atol=1e-12)


def in_two_batches(logits, y, num_bins):
  """Return bins and errors; the padding of the second batch is confident."""
  size = -(-len(y) // 2)
  real = np.arange(2 * size) < len(y)
  padding = np.eye(1, logits.shape[1])[: 2 * size - len(y)] * 9
  batches = (
    np.concatenate([logits, padding]).reshape(2, size, -1),
    np.resize(y, 2 * size).reshape(2, size),
    real.reshape(2, size),
  )

  @jax.jit
  def run(*batches):
    both = jax.vmap(partial(calibration.fill, num_bins=num_bins))(*batches)
    bins = jax.tree.map(lambda rows: jnp.sum(rows, 0), both)
    return bins, *calibration.errors(bins)

  return run(*batches)


def check_lambda_grid(case):
  """Evaluate every mixture of every client, paired in both ways."""
  for pair in ('fresh', 'stale'):
    logits = mixed_logits(case, pair)  # [K, G, N, Y]
    case.check(f'{pair}/logits', logits)
    found = check_grid(case, pair, logits, 'exact')
    if pair == 'fresh':
      batched = check_grid(case, 'batched', logits, 'batches')
      check_grid(case, 'v1_batched', logits, 'whole_batches')
      check_choices(case, *found, batched[1])


def mixed_logits(case, pair):
  """Return the logits of (1 - lambda) w_f + lambda w_l; biases exist once."""
  task, (_, test), rows = case.task(), case.data(), []
  (mixtures,) = case.given('lambda_grid')
  for i in range(case['clients']):
    prefix = 'global' if pair == 'fresh' else f'client{i}/fed'
    federated = flatten_dict(case.subtree(prefix), sep='/')
    own = flatten_dict(case.subtree(f'client{i}/local'), sep='/')
    x = test.x[test.index[i]]
    for value in mixtures:
      mixed = {
        name: leaf + value * (own[name] - leaf) if name in own else leaf
        for name, leaf in federated.items()
      }
      params = jax.tree.map(jnp.asarray, goldens.subtree(mixed))
      rows.append(np.asarray(task.logits(params, x, jnp.ones(len(x)))))
  return np.stack(rows).reshape(case['clients'], -1, *rows[0].shape)


def check_grid(case, prefix, logits, rule):
  """Compare all tables [K, G]; return scores and tables, shares as the case."""
  assert case['n_bins'] == calibration.NUM_BINS
  scores = score_all(rule, case['eval_batch_size'])(logits, case.data()[1])
  views = {
    f'mix_{value:.6f}': jax.tree.map(lambda t, g=g: np.asarray(t[:, g]), scores)
    for g, value in enumerate(case.arrays['lambda_grid'])
  }
  table = choices.grid(views, views)
  tables = {'accuracy': table.correct / table.count, **other_measures(table)}
  tables['top5'] = tables['top5'] / 100
  for name, values in tables.items():
    case.check(f'{prefix}/{NAMES.get(name, name)}', values)
  return views, tables


def score_all(rule, size):
  """Return (logits [K, G, N, Y], test) -> scores [K, G].

  A model is its table of logits here, an image its place: no network has to
  be in the program.
  """

  def score(table, own):
    return SCORINGS[rule](
      lambda view, x, mask: view[x.astype(int)],
      table,
      own,
      lambda x, key: x.astype(float),
      size,
    )

  of_client = jax.vmap(score, (0, None))

  @jax.jit
  def run(logits, test):
    places = jnp.broadcast_to(jnp.arange(logits.shape[2]), test.index.shape)
    own = ClientData(places, test.y[test.index], places, test.count)
    return jax.vmap(of_client)(logits, own)

  return run


def check_choices(case, views, tables, batched):
  accuracy = tables['accuracy']
  best = choices.best_views(views, np.ones(len(accuracy)))['mix']
  together, each = best['together'], best['each']
  place = list(views).index(together['view'])
  case.check('select/best_common_index', place, exact=True)
  case.check('select/best_common_mean', together['mean'] / 100)
  case.check('select/best_common_std_sample', together['std_sample'] / 100)
  case.check('select/oracle_index', np.argmax(accuracy, 1), exact=True)
  case.check('select/oracle_accuracy', accuracy.max(1))
  case.check('select/oracle_mean', each['mean'] / 100)
  case.check('select/oracle_std_population', each['std'] / 100)
  chosen = np.argmax(batched['accuracy'], 1)
  case.check('select/head_best_index', chosen, exact=True)
  for name, values in choices.released_choice(batched).items():
    case.check(f'select/head_{NAMES.get(name, name)}', values)


CHECKS = {
  'ece / mce, bins (lo, hi] of equal width, dataset-level': check_calibration,
  'superfed evaluation over the lambda grid': check_lambda_grid,
}
