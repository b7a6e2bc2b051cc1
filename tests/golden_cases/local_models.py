"""Methods whose clients keep their models: Local-only and LG-FedAvg.

Their public code evaluates every client at its best round on the TEST set.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import load
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import test_selection
from golden_cases.inputs import (
  KEY,
  case_task,
  clients_data,
  finetuning,
  of,
  training,
)
from golden_cases.rounds import (
  Replay,
  accuracies,
  build,
  check_losses,
  check_models,
  evaluated,
  losses_of,
  replay,
  rows,
  run_rounds,
)


def check_local_only(case):
  """A round of the package is an epoch here: each of them is evaluated."""
  rates = jnp.asarray(case['lr_per_epoch'], float)
  train = training(case)._replace(
    rounds=case['epochs'], epochs=1, learning_rate=lambda clock: rates[clock]
  )
  algorithm, (data, test) = (
    build(case, 'local_only', train=train),
    (clients_data(case)),
  )
  each = case['local_epochs']
  by_epoch = {
    'clients': case['clients'],
    'participants': [c for c in case['participants'] for _ in range(each)],
  }
  steps, losses, table, best = {}, {}, [], None
  for done in run_rounds(by_epoch, algorithm, data):
    number = -(-done.number // each)
    for i, update in done.updates.items():
      steps.setdefault(i, []).extend(rows(update.fits[0][1].losses, update))
      losses.setdefault((number, i), []).append(update.metrics['loss'])
    models = views_of(algorithm, done, data, 'personal')
    table.append(accuracies(algorithm, models, test))
    best = fold(best, table[-1], done.number, models, test)
    for i, model in enumerate(models):
      if done.number % each == 0:
        case.check(f'client{i}/round{number}', model)
  assert done.number == case['epochs']
  for i, values in steps.items():
    case.check(f'step_loss/client{i}', values)
  check_losses(case, {key: np.mean(values) for key, values in losses.items()})
  case.check('accuracy_per_epoch', table)
  case.check('best_epoch', best.round, exact=True)
  kept = models_of(best.models, case['clients'])
  for i, model in enumerate(kept):
    case.check(f'client{i}/best', model)
  check_models(case, algorithm, models, test, 'initial')
  check_models(case, algorithm, kept, test, 'personalized')
  case.finish()


def check_lg_fedavg(case):
  (rate,) = set(case['lr_per_round'])  # constant, by definition
  module, task = load('lg_fedavg'), case_task(case)
  hp = module.HParams(
    training(case),
    finetuning(case),
    rate,
    train_fedavg=False,
    protocol='released',
  )
  (stage,) = module.build(task, hp)
  algorithm, (train, test) = stage.algorithm, clients_data(case)
  start = [task.init(KEY(0))] * case['clients']
  first = accuracies(algorithm, start, test)
  case.check('table/accuracy_round0', first)
  best = fold(None, first, 0, start, test, replace_ties=True)
  table, table_best = [], []

  def each(done):
    nonlocal best
    models = views_of(algorithm, done, train, 'initial')
    table.append(accuracies(algorithm, models, test))
    best = fold(best, table[-1], done.number, models, test, replace_ties=True)
    finished = stage.keep_best.finish(best.models)
    printed = models_of(finished, case['clients'])
    table_best.append(accuracies(algorithm, printed, test))
    for i, model in enumerate(printed):
      logits, _, _ = evaluated(algorithm, model, test, i)
      case.check(f'table/client{i}/round{done.number}/logits', logits)

  how = Replay(
    losses_of(),
    kept=lambda body, up: {'{0}/{1}': body},
    views={'initial': 'initial', 'personalized': 'finetuned'},
  )
  replay(case, algorithm, how, each)
  case.check('table/accuracy', table)
  case.check('table/accuracy_best_averaged_head', table_best)
  case.finish()


def views_of(algorithm, done, train, view):
  """Return one view of every client; what it does not need is not computed."""

  @jax.jit
  def personalize(server, client, data):
    return algorithm.personalize(server, client, data, KEY(0))[view]

  return [
    personalize(done.server, client, of(train, i))
    for i, client in enumerate(done.clients)
  ]


def models_of(stacked, number):
  return [trees.gather(stacked, i) for i in range(number)]


def fold(best, accuracy, number, models, test, **options):
  """Return the best round of every client so far, with its models."""
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
  correct = np.rint(np.asarray(accuracy) * test.count / 100).astype(int)
  if best is None:
    best = test_selection.init_best(len(models), stacked)
  scores = Scores(jnp.asarray(correct), test.count, jnp.zeros(len(models)))
  return test_selection.update_best(best, scores, number, stacked, **options)


CHECKS = {'local-only': check_local_only, 'lg-fedavg': check_lg_fedavg}
