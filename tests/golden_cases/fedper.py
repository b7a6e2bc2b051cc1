"""FedPer: heads that clients keep, or discard after a round."""

from fedjax_pfl.algorithms import fedper
from golden_cases.case_inputs import (
  case_task,
  clients_data,
  finetuning_settings,
  training,
)
from golden_cases.rounds import (
  check_steps,
  check_views,
  checked_rounds,
)


def check_paper(case):
  check_rounds(case, 'paper')


def check_released(case):
  check_rounds(case, 'released')


def check_rounds(case, protocol):
  hp = fedper.HParams(
    training(case),
    finetuning_settings(case),
    shared=case.settings.get('aggregated_part', 'body'),
    protocol=protocol,
  )
  algorithm = fedper.build(case_task(case), hp)[0].algorithm
  train, test = clients_data(case)
  for done in checked_rounds(case, algorithm, train, check_steps):
    check_states(case, done)
  names = {'initial': 'initial', 'personalized': 'finetuned'}
  check_views(case, algorithm, done, train, test, names)
  case.finish(inputs=('train_mask', 'test_mask'))


def check_states(case, done):
  """Compare the common body, and the head that every client keeps, if any."""
  body = {name: at for name, at in done.server.params.items() if name != 'head'}
  case.check_tree(f'global/round{done.number}', body)
  for i, client in enumerate(done.clients):
    if client:
      head = {'head': client['head']}
      case.check_tree(f'client{i}/round{done.number}', head)


CHECKS = {
  'fedper, as intended': check_paper,
  'fedper, table mode': check_released,
}
