"""FedConcat: its two stages, what it infers from noise, and its clusters."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import fedconcat
from fedjax_pfl.client import clustering
from fedjax_pfl.core import trees
from fedjax_pfl.data.client_data import label_counts_of_clients, label_shares
from fedjax_pfl.models import concatenated
from golden_cases.inputs import client_rows, losses_of
from golden_cases.rounds import build_stages, run_rounds


def check_fedconcat(case):
  task, (train, test) = case.task(), case.data()
  train_encoders = case.training(rounds=case['encoder_rounds'])
  head = 'sum' if case['warm_start'] else 'fresh'
  hp = {'train': train_encoders, 'head': head}
  first, last = build_stages(case, 'fedconcat', task, **hp)
  case.check('distribution', shares_of(train, task))
  assignment = iter(case['cluster_assignment'])
  encoders = first.algorithm._replace(
    init_client=lambda server, data, rng: jnp.asarray(next(assignment))
  )
  for done in run_rounds(encoders, train, case['participants_encoder']):
    for i, update in done.updates.items():
      place = f'client{i}/round{done.number}'
      case.check(place, update.fits[0][0])
      case.check(f'step_loss/{place}', losses_of(update.fits[0]))
    for k in range(case['clusters']):
      model = trees.gather(done.server.params, k)
      case.check(f'cluster{k}/round{done.number}', model)
  check_classifier(case, task, last, done.server, train, test)


def shares_of(train, task):
  return label_shares(label_counts_of_clients(train, task.num_classes))


def check_classifier(case, task, stage, clusters_server, train, test):
  start, _ = stage.initialize(clusters_server, (), train)
  if case['warm_start']:
    case.check('head_init', start.params['head'])
  else:
    fresh = start.params['head']
    given = case.given(*(f'head_init/{leaf}' for leaf in fresh))
    head = dict(zip(fresh, map(jnp.asarray, given), strict=True))
    assert jax.tree.map(jnp.shape, head) == jax.tree.map(jnp.shape, fresh)
    start = start._replace(params={**start.params, 'head': head})
  start = start._replace(round=jnp.zeros((), jnp.int32))
  model = concatenated.widen(task, case['clusters'])
  features, logits = jax.jit(model.features), jax.jit(model.logits)
  images = [client_rows(test, i)[0] for i in range(case['clients'])]

  def of_tests(fn, server):
    params = server.params
    return np.stack([fn(params, x, jnp.ones(len(x))) for x in images])

  case.check('features/test', of_tests(features, start))
  case.check('logits/round0', of_tests(logits, start))
  train = stage.prepare_data(start, train)
  algorithm = stage.algorithm._replace(init_server=lambda rng: start)
  for done in run_rounds(algorithm, train, case['participants_classifier']):
    for i, update in done.updates.items():
      name = f'head_client_loss/client{i}/round{done.number}'
      case.check(name, losses_of(update.fits[0]))
    case.check(f'head/round{done.number}', done.server.params['head'])
    case.check(f'logits/round{done.number}', of_tests(logits, done.server))
  hits = [
    of.argmax(1) == client_rows(test, i)[1]
    for i, of in enumerate(of_tests(logits, done.server))
  ]
  case.check('final/accuracy', [hit.mean() for hit in hits])


def check_inference(case):
  task, q = case.task(), []
  (inputs,) = case.given('inputs')  # [K, r, H, W, ch]

  @jax.jit
  def mean_of(params, halves):
    rows = lambda n: halves[n]
    return fedconcat.mean_softmax(task, params, rows, len(halves))

  for i, rows in enumerate(jnp.asarray(inputs)):
    params = case.params(f'client{i}/model')
    halves = rows.reshape(-1, len(rows) // (2 - len(rows) % 2), *rows.shape[1:])
    q.append(mean_of(params, halves))
  q = np.array(q)
  case.check('q', q)
  shares = shares_of(case.data()[0], task)
  case.check('true_distribution', shares)
  case.check('l1_to_true', np.abs(q - shares).sum(1))
  number = len(set(case.arrays['assignment'].tolist()))
  check_groups(case, 'assignment', clustering.cluster(q, number, seed=0))


def check_clusters(case):
  for name, about in case['sets'].items():
    x, want = case.given(f'{name}/x', f'{name}/labels')
    model = clustering.k_means(x, about['k'], seed=0)
    inertia = inertia_of(x, model.labels_)
    np.testing.assert_allclose(model.inertia_, inertia, rtol=1e-10)
    case.check(f'{name}/inertia', inertia_of(x, want))
    assert inertia <= about['inertia_bound']
    if about['robust']:  # else they are the best of many near-optimal ones
      check_groups(case, f'{name}/labels', model.labels_)
    case.given(f'{name}/inertia_ninit10_worst')  # made the bound
  x, cap = case.given('capped/x', 'capped/cap')
  starts = [key for key in case.arrays if key.endswith('/centroids_init')]
  for start in starts:
    (centres,), name = case.given(start), start.removesuffix('/centroids_init')
    rng = np.random.default_rng(0)
    after_one = clustering.capped(x, centres, int(cap), rng, iterations=1)
    labels = clustering.capped(x, centres, int(cap), rng)
    assert np.bincount(labels).max() <= cap
    case.check(f'{name}/labels_after_1_iteration', after_one, exact=True)
    case.check(f'{name}/labels', labels, exact=True)
  number = len(set(case.arrays['capped/labels_uncapped'].tolist()))
  free = clustering.cluster(x, number, seed=0)
  check_groups(case, 'capped/labels_uncapped', free)


def check_groups(case, name, got):
  """Compare partitions: clusters have no order."""
  (want,) = case.given(name)
  np.testing.assert_array_equal(canonical(got), canonical(want))


def canonical(labels):
  """Return labels numbered by first appearance."""
  numbers = {}
  return np.array([numbers.setdefault(k, len(numbers)) for k in list(labels)])


def inertia_of(x, labels):
  groups = [x[labels == k] for k in np.unique(labels)]
  return sum(((group - group.mean(0)) ** 2).sum() for group in groups)


CHECKS = {
  'fedconcat': check_fedconcat,
  'fedconcat with warm-started classifier and partial participation': (
    check_fedconcat
  ),
  'fedconcat-id label-distribution inference': check_inference,
  'clustering of label distributions': check_clusters,
}
