"""Fine-tuning, and accuracy without the head, from given parameters."""

from types import SimpleNamespace
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.client import local_training, personalization
from golden_cases.inputs import (
  KEY,
  case_task,
  client_rows,
  clients_data,
  of,
  start_params,
  stepwise,
)
from golden_cases.rounds import check_models


def check_finetuning(case):
  task = case_task(case)
  train, test = clients_data(case)
  start = start_params(case)
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

  @stepwise
  def run(data):
    fits = []

    def recorded(*args, fit=local_training.fit, **kwargs):
      fits.append(fit(*args, **kwargs))
      return fits[-1]

    with mock.patch.object(local_training, 'fit', recorded):
      models = personalization.finetune(task, start, data, KEY(0), personal)
    return models['finetuned'], fits[0][1]

  models = []
  for i in range(case['clients']):
    model, info = run(of(train, i))
    case.check(f'client{i}/final', model)
    case.check(f'step_loss/client{i}', info.losses[: int(info.num_steps)])
    models.append(model)
  algorithm = SimpleNamespace(predict=personalization.make_predict(task))
  check_models(case, algorithm, [start] * len(models), test, 'initial')
  check_models(case, algorithm, models, test, 'personalized')
  case.finish()


def check_without_head(case):
  task = case_task(case)
  train, test = clients_data(case)
  start = start_params(case)
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
  case.finish()


def padded_batches(x, size):
  """Yield (rows [size], mask [size]): one shape, so one compilation."""
  for first in range(0, len(x), size):
    rows = x[first : first + size]
    rest = [(0, size - len(rows))] + [(0, 0)] * (x.ndim - 1)
    yield jnp.pad(rows, rest), (jnp.arange(size) < len(rows)).astype(x.dtype)


CHECKS = {
  'fine-tuning': check_finetuning,
  'accuracy without the head (nearest class template)': check_without_head,
}
