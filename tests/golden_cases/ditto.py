"""Ditto: as its paper has it, and as the public code of FedBABU had it."""

import numpy as np

from fedjax_pfl.algorithms import load
from golden_cases import rounds
from golden_cases.case_inputs import KEY, case_task, clients_data, of, training
from golden_cases.python_loops import stepwise


def check_paper(case):
  epochs = case.settings.get('personal_epochs')
  algorithm = build(
    case,
    personal_momentum=case.settings.get('personal_momentum', 0.0),
    personal_epochs=epochs,
  )
  train, test = clients_data(case)
  losses = {}
  for done in rounds.run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      _, (_, personal) = update.fits
      rounds.check_steps(case, i, done.number, personal)
      losses[done.number, i] = update.metrics['loss']
    for i, client in enumerate(done.clients):
      name = f'client{i}/round{done.number}'
      # Some cases have no such arrays of clients that stood aside.
      if any(key.startswith(name) for key in case.arrays):
        case.check_tree(name, client)
    case.check_tree(f'global/round{done.number}', done.server.params)
  rounds.check_losses(case, losses)
  finish(case, algorithm, done, train, test)


def check_table(case):
  check_released(case, 'global')


def check_last(case):
  check_released(case, 'local')


def check_released(case, anchor):
  algorithm = build(case, protocol='released', anchor=anchor)
  train, test = clients_data(case)
  losses = {}
  accuracies = np.zeros((case['rounds'], case['clients']))
  personalize = stepwise(algorithm.personalize)
  for done in rounds.run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      rounds.check_trained(case, i, done.number, update.upload)
      rounds.check_steps(case, i, done.number, update.fits[-1][1])
      losses[done.number, i] = update.metrics['loss']
    case.check_tree(f'global/round{done.number}', done.server.params)
    for i, client in enumerate(done.clients):
      models = personalize(done.server, client, of(train, i), KEY(0))
      _, accuracy, _ = rounds.evaluated(algorithm, models['personal'], test, i)
      accuracies[done.number - 1, i] = accuracy
  rounds.check_losses(case, losses)
  case.check('table/accuracy', accuracies)
  finish(case, algorithm, done, train, test)


def build(case, **hp):
  module = load('ditto')
  hp = module.HParams(train=training(case), lam=case['lambda'], **hp)
  (stage,) = module.build(case_task(case), hp)
  return stage.algorithm


def finish(case, algorithm, done, train, test):
  names = {'initial': 'initial', 'personalized': 'personal'}
  rounds.check_views(case, algorithm, done, train, test, names)
  case.finish(inputs=('train_mask', 'test_mask'))


CHECKS = {
  'ditto, as intended': check_paper,
  'ditto, table mode': check_table,
  'ditto, last version of the official code': check_last,
}
