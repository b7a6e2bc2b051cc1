"""Methods whose clients keep their models: Local-only and LG-FedAvg.

Their public code evaluates every client at its best round on the TEST set.
"""

import goldens
import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import load
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import test_selection
from golden_cases.case_inputs import (
  KEY,
  case_task,
  clients_data,
  finetuning_settings,
  of,
  training,
)
from golden_cases.rounds import (
  check_losses,
  check_models,
  check_steps,
  check_trained,
  check_views,
  evaluated,
  run_rounds,
)


def check_local_only(case):
  """A round of the package is an epoch here: each of them is evaluated."""
  rates = jnp.asarray(case['lr_per_epoch'], float)
  train_settings = training(case)._replace(
    rounds=case['epochs'], epochs=1, learning_rate=lambda clock: rates[clock]
  )
  module = load('local_only')
  hp = module.HParams(train_settings, personalization_of_none(case))
  algorithm = module.build(case_task(case), hp)[0].algorithm
  train, test = clients_data(case)
  each = case['local_epochs']
  by_epoch = {
    'clients': case['clients'],
    'participants': [c for c in case['participants'] for _ in range(each)],
  }
  steps, losses, table = {}, {}, []
  best = None
  for done in run_rounds(by_epoch, algorithm, train):
    number = -(-done.number // each)
    for i, update in done.updates.items():
      info = update.fits[0][1]
      steps.setdefault(i, []).extend(info.losses[: int(info.num_steps)])
      losses.setdefault((number, i), []).append(update.metrics['loss'])
    models = views_of(algorithm, done, train, 'personal')
    table.append(accuracies(algorithm, models, test))
    best = fold(best, table[-1], done.number, models, test)
    if done.number % each == 0:
      for i, model in enumerate(models):
        case.check_tree(f'client{i}/round{number}', model)
  assert done.number == case['epochs']
  for i, values in steps.items():
    case.check(f'step_loss/client{i}', values)
  check_losses(case, {key: np.mean(values) for key, values in losses.items()})
  case.check('accuracy_per_epoch', table)
  case.check('best_epoch', best.round, exact=True)
  kept = [trees.gather(best.models, i) for i in range(case['clients'])]
  for i, model in enumerate(kept):
    case.check_tree(f'client{i}/best', model)
  check_models(case, algorithm, models, test, 'initial')
  check_models(case, algorithm, kept, test, 'personalized')
  case.finish(inputs=('train_mask', 'test_mask'))


def personalization_of_none(case):
  """Return the defaults: what such a case has there is no fine-tuning."""
  assert 'epochs' not in case['personalization']
  return load('local_only').HParams().finetune


def check_lg_fedavg(case):
  (rate,) = set(case['lr_per_round'])  # constant, by definition
  module = load('lg_fedavg')
  task = case_task(case)
  hp = module.HParams(
    training(case),
    finetuning_settings(case),
    rate,
    train_fedavg=False,
    protocol='released',
  )
  (stage,) = module.build(task, hp)
  algorithm, finish_fn = stage.algorithm, stage.keep_best.finish
  train, test = clients_data(case)
  start = [task.init(KEY(0))] * case['clients']
  accuracy = accuracies(algorithm, start, test)
  case.check('table/accuracy_round0', accuracy)
  best = fold(None, accuracy, 0, start, test, replace_ties=True)
  losses, table, table_best = {}, [], []
  for done in run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      check_trained(case, i, done.number, update.fits[0][0])
      check_steps(case, i, done.number, update.fits[0][1])
      losses[done.number, i] = update.metrics['loss']
    check_parts(case, done)
    models = views_of(algorithm, done, train, 'initial')
    table.append(accuracies(algorithm, models, test))
    best = fold(best, table[-1], done.number, models, test, replace_ties=True)
    finished = finish_fn(best.models)
    printed = [trees.gather(finished, i) for i in range(case['clients'])]
    table_best.append(accuracies(algorithm, printed, test))
    for i, model in enumerate(printed):
      logits, _, _ = evaluated(algorithm, model, test, i)
      case.check(f'table/client{i}/round{done.number}/logits', logits)
  case.check('table/accuracy', table)
  case.check('table/accuracy_best_averaged_head', table_best)
  check_losses(case, losses)
  names = {'initial': 'initial', 'personalized': 'finetuned'}
  check_views(case, algorithm, done, train, test, names)
  case.finish(inputs=('train_mask', 'test_mask'))


def check_parts(case, done):
  """Compare the shared head, and the bodies that are stored."""
  head = {'head': done.server.params['head']}
  case.check_tree(f'global/round{done.number}', head)
  for i, client in enumerate(done.clients):
    prefix = f'client{i}/round{done.number}'
    for name, leaf in goldens.flatten(client).items():
      stored = [f'{prefix}/{name}', f'{prefix}/{name}@']
      if leaf is not None and any(
        key == stored[0] or key.startswith(stored[1]) for key in case.arrays
      ):
        case.check(f'{prefix}/{name}', leaf)


def views_of(algorithm, done, train, view):
  """Return one view of every client; what it does not need is not computed."""

  @jax.jit
  def personalize(server, client, data):
    return algorithm.personalize(server, client, data, KEY(0))[view]

  return [
    personalize(done.server, client, of(train, i))
    for i, client in enumerate(done.clients)
  ]


def accuracies(algorithm, models, test):
  return [
    evaluated(algorithm, model, test, i)[1] for i, model in enumerate(models)
  ]


def fold(best, accuracy, number, models, test, **options):
  """Return the best round of every client so far, with its models."""
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
  correct = np.rint(np.asarray(accuracy) * test.count / 100).astype(int)
  if best is None:
    best = test_selection.init_best(len(models), stacked)
  scores = Scores(jnp.asarray(correct), test.count, jnp.zeros(len(models)))
  return test_selection.update_best(best, scores, number, stacked, **options)


CHECKS = {'local-only': check_local_only, 'lg-fedavg': check_lg_fedavg}
