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
  check_losses,
  check_steps,
  check_trained,
  run_rounds,
)


def check_rounds(case):
  hp = scaffold.HParams(training(case), finetuning_settings(case))
  algorithm = scaffold.build(case_task(case), hp)[0].algorithm
  train, test = clients_data(case)
  losses = {}
  for done in run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      ((params, info),) = update.fits
      check_trained(case, i, done.number, params)
      check_steps(case, i, done.number, info)
      losses[done.number, i] = update.metrics['loss']
    server = done.server
    case.check_tree(f'global/round{done.number}', server.params)
    variate = algorithm.download(server, None).variate
    case.check_tree(f'c_global/round{done.number}', variate)
    for i, variate in enumerate(done.clients):
      case.check_tree(f'c_client{i}/round{done.number}', variate)
  check_losses(case, losses)
  check_final(case, algorithm, done.server, test)
  case.finish(inputs=('train_mask', 'test_mask'))


CHECKS = {
  'scaffold, option ii': check_rounds,
  'scaffold, option ii, partial participation': check_rounds,
}
