"""Per-FedAvg, first order, with any rates of inner and outer steps."""

import re

import jax.numpy as jnp

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import personalization
from fedjax_pfl.core.types import Batch
from golden_cases import rounds
from golden_cases.case_inputs import (
  KEY,
  case_task,
  client_rows,
  clients_data,
  of,
  training,
)
from golden_cases.python_loops import stepwise

RATES = 'alpha_per_round', 'beta_per_round'


def check_per_fedavg(case):
  task, hp = case_task(case), hyperparameters(case)
  (stage,) = load('per_fedavg').build(task, hp)
  algorithm = stage.algorithm
  train, test = clients_data(case)
  stage.validate_clients(train)
  losses = {}
  for done in rounds.run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      rounds.check_trained(case, i, done.number, update.upload)
      rounds.check_steps(case, i, done.number, update.fits[0][1])
      losses[done.number, i] = update.metrics['loss']
    case.check_tree(f'global/round{done.number}', done.server.params)
  rounds.check_losses(case, losses)
  rounds.check_views(case, algorithm, done, train, test, {'initial': 'initial'})
  check_adapted(case, task, algorithm, done.server, test)
  check_helpers(case, algorithm, done.server, test)
  case.finish(inputs=('train_mask', 'test_mask'))


def hyperparameters(case):
  """Return those of the paper, or of the code, or whatever the case has."""
  module = load('per_fedavg')
  # The rate after the last round is that of the adaptation.
  last = [case['personalization']['lr']]
  alpha, beta = (
    case.settings.get(name, case['lr_per_round']) for name in RATES
  )
  train = training(case)._replace(learning_rate=schedule([*alpha, *last]))
  if beta == alpha:
    reading = {'protocol': 'paper'}
  elif set(beta) == {module.RELEASED_BETA}:
    reading = {'protocol': 'released'}
  else:
    reading = {'beta': schedule([*beta, beta[-1]])}
  tests = case.load(case['common'])['test_y'].shape[1]
  personal = personalization.Finetuning(batch_size=tests, shuffle=False)
  return module.HParams(train, personal, **reading)


def schedule(rates):
  rates = jnp.asarray(rates, float)
  return lambda clock: rates[clock]


def check_adapted(case, task, algorithm, server, test):
  """One step on the first tests of a client, evaluated on the last."""
  support, query = first_and_last(case, test)
  adapt = make_adapt(algorithm, server, 'adapted')
  before = []
  for i in range(case['clients']):
    x, y = client_rows(support, i)
    batch = Batch(x, y, jnp.ones(len(y)))
    before.append(task.loss(server.params, batch, KEY(0)))
    scores = rounds.evaluated(algorithm, adapt(of(support, i)), query, i)
    case.check(f'personalized/client{i}/logits', scores[0])
  case.check('personalized/support_loss', before)


def first_and_last(case, test):
  """Return as many tests as the case says: 'first 5 test samples'."""
  few, rest = (
    int(re.search(r'\d+', case['personalization'][part]).group())
    for part in ('support', 'query')
  )
  width = test.index.shape[1]
  return (
    test._replace(
      index=test.index[:, :few], count=jnp.full_like(test.count, few)
    ),
    test._replace(
      index=test.index[:, width - rest :], count=jnp.full_like(test.count, rest)
    ),
  )


def check_helpers(case, algorithm, server, test):
  """Two steps on a client's own tests; on those of the last of the round."""
  adapt = make_adapt(algorithm, server, 'adapted_twice')
  models = [adapt(of(test, i)) for i in range(case['clients'])]
  last = models[case['participants'][-1][-1]]
  for i, model in enumerate(models):
    for name, other in (('helper', model), ('table', last)):
      logits, _, _ = rounds.evaluated(algorithm, other, test, i)
      case.check(f'{name}/client{i}/logits', logits)


def make_adapt(algorithm, server, view):
  @stepwise
  def adapt(data):
    return algorithm.personalize(server, (), data, KEY(0))[view]

  return adapt


CHECKS = {'per-fedavg, first order': check_per_fedavg}
