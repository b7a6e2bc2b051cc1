"""pFedMe, as its authors' code has it."""

import jax
import optax

from fedjax_pfl.algorithms import pfedme
from golden_cases import rounds
from golden_cases.case_inputs import KEY, case_task, clients_data, of, training


def check_pfedme(case):
  hp = hyperparameters(case)
  algorithm = pfedme.build(case_task(case), hp)[0].algorithm
  train, test = clients_data(case)
  losses, shared = {}, [case_task(case).init(None)] * case['clients']
  for done in rounds.run_rounds(case, algorithm, train, run=jax.jit):
    for i, update in done.updates.items():
      steps = int(update.metrics['num_steps'])
      alone = update.metrics['cross_entropies'][:steps]
      case.check(
        f'step_loss/client{i}/round{done.number}',
        alone.reshape(-1, hp.inner_steps),
      )
      losses[done.number, i] = alone.mean()
      shared[i] = update.upload
    for i, client in enumerate(done.clients):
      place = f'client{i}/round{done.number}'
      rounds.check_stored(case, f'{place}/w', shared[i])
      rounds.check_stored(case, f'{place}/theta', client.personal)
    case.check_tree(f'global/round{done.number}', done.server.params)
  rounds.check_losses(case, losses)
  for i, client in enumerate(done.clients):
    views = algorithm.personalize(done.server, client, of(train, i), KEY(0))
    logits, _, _ = rounds.evaluated(algorithm, views['personal'], test, i)
    case.check(f'personalized/client{i}/logits', logits)
  case.finish()


def hyperparameters(case):
  """Return those of the case; `outer_lr` is the rate of all its rounds."""
  train = training(case)
  if 'outer_lr' in case.settings:
    rate = optax.constant_schedule(case['outer_lr'])
    train = train._replace(learning_rate=rate)
  return pfedme.HParams(
    train,
    inner_steps=case['inner_steps'],
    inner_lr=case['inner_lr'],
    lam=case['lambda'],
    beta=case.settings.get('beta', 1.0),
  )


CHECKS = {'pfedme (original)': check_pfedme}
