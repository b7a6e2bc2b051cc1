"""Models of single clients: kept by them (Local-only, LG-FedAvg), or adapted.

The public code of Local-only and LG-FedAvg evaluates every client at its best
round on the TEST set. Adapted: fine-tuned, or without the head.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.client import personalization
from fedjax_pfl.core import trees
from fedjax_pfl.training.best_models import Kept, later_if_better
from golden_cases.inputs import (
  KEY,
  client_rows,
  losses_of,
  of,
  stepwise,
  with_fits,
)
from golden_cases.rounds import (
  Replay,
  build,
  build_stages,
  check_losses,
  check_models,
  evaluated,
  replay,
  run_rounds,
  views_of,
)


def check_local_only(case):
  """A round of the package is an epoch here: each of them is evaluated."""
  train = case.training('lr_per_epoch', rounds=case['epochs'], epochs=1)
  algorithm, (data, test) = build(case, 'local_only', train=train), case.data()
  each = case['local_epochs']
  cohorts = [cohort for cohort in case['participants'] for _ in range(each)]
  steps, losses, table, epochs = {}, {}, [], []
  for done in run_rounds(algorithm, data, cohorts):
    number = -(-done.number // each)
    for i, update in done.updates.items():
      steps.setdefault(i, []).extend(losses_of(update.fits[0]))
      losses.setdefault((number, i), []).append(update.metrics['loss'])
    models = views_of(algorithm, done, data, ['personal'], jax.jit)['personal']
    table.append(evaluated(algorithm, models, test).accuracy)
    epochs.append(models)
    for i, model in enumerate(models):
      if done.number % each == 0:
        case.check(f'client{i}/round{number}', model)
  assert done.number == case['epochs']
  for i, values in steps.items():
    case.check(f'step_loss/client{i}', values)
  check_losses(case, {key: np.mean(values) for key, values in losses.items()})
  case.check('accuracy_per_epoch', table)
  best = np.argmax(table, 0)  # of equal epochs the first
  case.check('best_epoch', best + 1, exact=True)
  kept = [epochs[epoch][i] for i, epoch in enumerate(best)]
  for i, model in enumerate(kept):
    case.check(f'client{i}/best', model)
  check_models(case, algorithm, models, test, 'initial')
  check_models(case, algorithm, kept, test, 'personalized')


def check_lg_fedavg(case):
  (rate,) = set(case['lr_per_round'])  # constant, by definition
  hp = {'learning_rate': rate, 'train_fedavg': False, 'protocol': 'released'}
  task, (train, test) = case.task(), case.data()
  (stage,) = build_stages(case, 'lg_fedavg', task, **hp)
  algorithm, start = stage.algorithm, [task.init(KEY(0))] * case['clients']
  first = evaluated(algorithm, start, test).accuracy
  case.check('table/accuracy_round0', first)
  best = fold(None, first, start, test)
  table, table_best = [], []

  def each(done):
    nonlocal best
    models = views_of(algorithm, done, train, ['initial'], jax.jit)['initial']
    table.append(evaluated(algorithm, models, test).accuracy)
    best = fold(best, table[-1], models, test)
    finished = stage.keep_best(best.models)
    printed = evaluated(algorithm, models_of(finished, case['clients']), test)
    table_best.append(printed.accuracy)
    for i, logits in enumerate(printed.logits):
      case.check(f'table/client{i}/round{done.number}/logits', logits)

  how = Replay(kept=lambda body, up: {'{0}/{1}': body})
  replay(case, algorithm, how, each)
  case.check('table/accuracy', table)
  case.check('table/accuracy_best_averaged_head', table_best)


def models_of(stacked, number):
  return [trees.gather(stacked, i) for i in range(number)]


def fold(best, accuracy, models, test):
  """Return the best round of every client so far, with its models."""
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
  correct = np.rint(np.asarray(accuracy) * test.count / 100).astype(int)
  latest = Kept(correct, stacked)
  return later_if_better(best, latest) if best else latest


# ---- Adapted -----------------------------------------------------------------


def check_finetuning(case):
  task, (train, test), start = case.task(), case.data(), case.start()
  rates = {'body': case['body_lr'], 'head': case['head_lr']}
  parts = [part for part, rate in rates.items() if rate]
  if len({rate for rate in rates.values() if rate}) > 1:
    pytest.skip(f'{case["case"]}: two rates in one fit are not there yet')
  personal = personalization.Finetuning(
    epochs=(case['epochs'],),
    trainable='full' if len(parts) == 2 else parts[0],
    learning_rate=max(rates.values()),
    momentum=case['momentum'],
    batch_size=case['batch_size'],
    shuffle=False,
  )
  run = stepwise(with_fits(personalization.finetune))
  models = []
  for i in range(case['clients']):
    own, fits = run(task, start, of(train, i), KEY(0), personal)
    models.append(own['finetuned'])
    case.check(f'client{i}/final', models[-1])
    case.check(f'step_loss/client{i}', losses_of(fits[0]))
  algorithm = SimpleNamespace(predict=personalization.make_predict(task))
  check_models(case, algorithm, [start] * len(models), test, 'initial')
  check_models(case, algorithm, models, test, 'personalized')


def check_without_head(case):
  """Classify by the nearest of the means of features that a client has."""
  task, (train, test), start = case.task(), case.data(), case.start()
  predict = personalization.make_predict(task)

  def evaluate(model, x, mask):
    views = personalization.Euclidean(model), personalization.Cosine(model)
    closeness = [predict(view, x, mask) for view in views]
    return [task.features(start, x, mask), *closeness]

  for variant, size in case['template_batch'].items():
    templates = stepwise(
      lambda data, size=size: personalization.class_templates(
        task, start, data, KEY(0), size
      )
    )
    for i in range(case['clients']):
      model = templates(of(train, i))
      place = f'{variant}/client{i}'
      means = jnp.where(model.present[:, None], model.means, jnp.nan)
      case.check(f'{place}/templates', means)
      x, y = client_rows(test, i)
      batches = [evaluate(model, *b) for b in padded_batches(x, size)]
      features, *closeness = (
        np.concatenate(rows)[: len(x)] for rows in zip(*batches, strict=True)
      )
      case.check(f'{place}/test_features', features)
      stored = {'euclidean/distance': -1, 'cosine/similarity': 1}
      for close, (name, sign) in zip(closeness, stored.items(), strict=True):
        best, kind = close.argmax(1), name.partition('/')[0]
        correct = np.sum(best == np.asarray(y))
        case.check(f'{place}/{name}', sign * close)
        case.check(f'{place}/{kind}/prediction', best, exact=True)
        case.check(f'{place}/{kind}/correct', correct, exact=True)


def padded_batches(x, size):
  """Yield (rows [size], mask [size]): one shape, so one compilation."""
  for first in range(0, len(x), size):
    rows = x[first : first + size]
    rest = [(0, size - len(rows))] + [(0, 0)] * (x.ndim - 1)
    yield jnp.pad(rows, rest), (jnp.arange(size) < len(rows)).astype(x.dtype)


CHECKS = {
  'local-only': check_local_only,
  'lg-fedavg': check_lg_fedavg,
  'fine-tuning': check_finetuning,
  'accuracy without the head (nearest class template)': check_without_head,
}
