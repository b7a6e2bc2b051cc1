"""FedRep: two phases with one momentum, heads that stay with their clients."""

import re

import jax.numpy as jnp

from fedjax_pfl.algorithms import fedrep
from fedjax_pfl.client.personalization import Finetuning
from golden_cases.case_inputs import KEY, case_task, clients_data, training
from golden_cases.rounds import (
  check_models,
  check_steps,
  check_trained,
  check_views,
  run_rounds,
)


def check_rounds(case):
  task = case_task(case)
  build = make_build(case, task)
  algorithm = build(protocol='released')
  train, test = clients_data(case)
  stored = [task.init(KEY(0))] * case['clients']
  for done in run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      ((stored[i], info),) = update.fits
      check_trained(case, i, done.number, stored[i])
      check_steps(case, i, done.number, info)
    body = {k: at for k, at in done.server.params.items() if k != 'head'}
    case.check_tree(f'global/round{done.number}', body)
    for i, client in enumerate(done.clients):
      head = {'head': client['head']}
      case.check_tree(f'client{i}/round{done.number}', head)
  check_models(case, algorithm, stored, test, 'stored')
  check_views(case, algorithm, done, train, test, {'initial': 'initial'})
  for prefix, epochs in adaptations(case):
    released = epochs == case['local_epochs']
    other = algorithm if released else build(protocol='paper', epochs=epochs)
    check_views(case, other, done, train, test, {prefix: 'finetuned'})
  case.finish(inputs=('train_mask', 'test_mask'))


def make_build(case, task):
  """Return (protocol, epochs) -> algorithm."""
  personal = case['personalization']
  assert personal['momentum'] == case['momentum']
  # After the last round the clock shows the learning rate of the test.
  rates = jnp.array([*case['lr_per_round'], personal['lr']], float)

  def build(protocol, epochs=1):
    hp = fedrep.HParams(
      training(case)._replace(learning_rate=lambda clock: rates[clock]),
      Finetuning(
        epochs=(epochs,), batch_size=case['batch_size'], shuffle=False
      ),
      body_epochs=personal['body_epochs'],
      momentum=case['momentum'],
      protocol=protocol,
    )
    return fedrep.build(task, hp)[0].algorithm

  return build


def adaptations(case):
  """Return (prefix in the case, epochs of the head before the test) pairs."""
  matches = [re.match(r'personalized_(\d+)/', key) for key in case.arrays]
  others = {m[0].rstrip('/'): int(m[1]) for m in matches if m}
  own = {'personalized': case['personalization']['head_epochs']}
  return {**own, **others}.items()


CHECKS = {'fedrep': check_rounds}
