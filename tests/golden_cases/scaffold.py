"""SCAFFOLD, option II."""

from fedjax_pfl.algorithms import scaffold
from golden_cases.case_inputs import (
  case_task,
  clients_data,
  finetuning_settings,
  training,
)
from golden_cases.rounds import (
  check_final,
  check_steps,
  checked_rounds,
)


def check_rounds(case):
  hp = scaffold.HParams(training(case), finetuning_settings(case))
  algorithm = scaffold.build(case_task(case), hp)[0].algorithm
  train, test = clients_data(case)
  for done in checked_rounds(case, algorithm, train, check_steps):
    server = done.server
    case.check_tree(f'global/round{done.number}', server.params)
    variate = algorithm.download(server, None).variate
    case.check_tree(f'c_global/round{done.number}', variate)
    for i, variate in enumerate(done.clients):
      case.check_tree(f'c_client{i}/round{done.number}', variate)
  check_final(case, algorithm, done.server, test)
  case.finish(inputs=('train_mask', 'test_mask'))


CHECKS = {
  'scaffold, option ii': check_rounds,
  'scaffold, option ii, partial participation': check_rounds,
}
