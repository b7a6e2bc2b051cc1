"""The cases of whole rounds: what each method computes of what they store."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_pfl.algorithms import per_fedavg
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.federated.rounds import init_states, make_round
from golden_cases.inputs import (
  KEY,
  batch_of,
  by_round,
  client_rows,
  losses_of,
  steps_of,
)
from golden_cases.rounds import (
  Replay,
  build,
  build_stages,
  check_models,
  check_views,
  evaluated,
  replay,
  views_of,
)

HERE = '{0}/{1}'  # client{i}/round{n}


def check_method(case, name, each=None, hp=(), **how):
  """Replay a case of a method that needs no more than a `Replay`."""
  algorithm = build(case, name, **dict(hp))
  return replay(case, algorithm, Replay(**how), each)


# ---- One global model --------------------------------------------------------


def check_fedavg_ragged(case):
  """Check the rounds of the engine, too: one compiled program a round."""
  check_method(case, 'fedavg')
  if case.training().aggregation == 'uniform':  # one of them is enough
    return
  algorithm, (train, _) = build(case, 'fedavg'), case.data()
  states = init_states(algorithm, train, KEY(0))
  round_fn = make_round(algorithm)
  for number, cohort in enumerate(case['participants'], start=1):
    *states, _ = round_fn(*states, jnp.array(cohort), train, KEY(0))
    case.check(f'global/round{number}', states[0].params)


def check_with_term(case, name, **how):
  """Check a method whose loss reports the cross-entropy beside the objective.

  A case has cross-entropies alone, or the objective and them beside it.
  """
  has_both = any(key.startswith('step_ce/') for key in case.arrays)

  def steps(update):
    (fit,) = update.fits
    alone = steps_of(fit, fit[1].reports['cross_entropies'])
    if has_both:
      return {'step_loss': losses_of(fit), 'step_ce': alone}
    return {'step_loss': alone}

  check_method(case, name, steps=steps, **how)


# ---- Parts and whole models that stay with their clients ---------------------


def check_fedrep(case):
  """Check the released reading, and the paper's where it is adapted longer."""
  personal, task = case['personalization'], case.task()
  assert personal['momentum'] == case['momentum']
  # After the last round the clock shows the learning rate of the test.
  rates = by_round([*case['lr_per_round'], personal['lr']])

  def reading(protocol, epochs=1):
    size = case['batch_size']
    return build(
      case,
      'fedrep',
      task=task,
      train=case.training(learning_rate=rates),
      finetune=Finetuning(epochs=(epochs,), batch_size=size, shuffle=False),
      body_epochs=personal['body_epochs'],
      momentum=case['momentum'],
      protocol=protocol,
    )

  algorithm = reading('released')
  stored = [task.init(KEY(0))] * case['clients']

  def each(done):
    for i, update in done.updates.items():
      stored[i] = update.fits[0][0]

  how = Replay(kept=lambda head, up: {HERE: head}, views={'initial': 'initial'})
  done = replay(case, algorithm, how, each)
  check_models(case, algorithm, stored, case.data()[1], 'stored')
  epochs = {'personalized': personal['head_epochs']}
  for key in case.arrays:
    if match := re.match(r'personalized_(\d+)(?=/)', key):
      epochs[match[0]] = int(match[1])
  for prefix, number in epochs.items():
    is_released = number == case['local_epochs']
    other = algorithm if is_released else reading('paper', number)
    check_views(case, other, done, {prefix: 'finetuned'})


def check_released_ditto(case, anchor):
  hp = {'lam': case['lambda'], 'protocol': 'released', 'anchor': anchor}
  algorithm, (train, test) = build(case, 'ditto', **hp), case.data()
  table = []

  def each(done):
    models = views_of(algorithm, done, train, ['personal'])['personal']
    table.append(evaluated(algorithm, models, test).accuracy)

  def steps(update):
    return {'step_loss': losses_of(update.fits[-1])}

  how = Replay(steps, lambda update: update.upload)
  replay(case, algorithm, how, each)
  case.check('table/accuracy', table)


def scored(case, algorithm):
  """Return `each` of a replay, and its rows: accuracies of the global model."""
  rows, (_, test) = [], case.data()

  def each(done):
    models = [done.server.params] * case['clients']
    rows.append(evaluated(algorithm, models, test).accuracy)

  return each, rows


def check_pfllib_fedbabu(case):
  """Check the global model of each round but the last, which is fine-tuned."""
  algorithm = build(case, 'fedbabu', finetune_from='trained')
  each, rows = scored(case, algorithm)
  replay(case, algorithm, Replay(), each)
  case.check('table/accuracy', rows[:-1])


def check_pfllib_pfedme(case):
  """Check that its personal models are the global one when they are scored."""
  each, rows = scored(case, build(case, 'pfedme'))
  check_pfedme(case, each, views={'scored': 'initial'})
  case.check('table/accuracy', rows)


def check_pfedme(case, each=None, views=None):
  train = case.training()
  if 'outer_lr' in case.settings:
    rate = optax.constant_schedule(case['outer_lr'])
    train = train._replace(learning_rate=rate)

  def alone(update):
    steps = int(update.metrics['num_steps'])
    return update.metrics['cross_entropies'][:steps]

  check_method(
    case,
    'pfedme',
    hp={'train': train},
    steps=lambda update: {
      'step_loss': alone(update).reshape(-1, case['inner_steps'])
    },
    trained=None,
    kept=lambda client, up: {f'{HERE}/w': up, f'{HERE}/theta': client.personal},
    loss=lambda update: alone(update).mean(),
    views=views,
    each=each,
    run=jax.jit,
  )


def check_apfl(case, **hp):
  alphas = []

  def steps(update):
    """Return both losses before, and alpha after, every step."""
    metrics, number = update.metrics, int(update.metrics['num_steps']) // 2
    later = jnp.append(metrics['alphas'][1:number], update.client.alpha)
    return {
      'step_loss': metrics['losses'][:number],
      'step_loss_mixed': metrics['mixed_losses'][:number],
      'alpha_trace': later,
    }

  check_method(
    case,
    'apfl',
    hp=hp,
    steps=steps,
    trained=None,
    kept=lambda client, up: {f'{HERE}/w': up, f'{HERE}/v': client.private},
    each=lambda done: alphas.append([one.alpha for one in done.clients]),
  )
  case.check('alpha', np.transpose(alphas))  # [client, round]


def check_papers_apfl(case):
  when = case.get('alpha_update', 'every_step').removesuffix('_of_round')
  order = case.get('update_order', 'simultaneous')
  check_apfl(case, adapt=when, order=order)


# ---- Per-FedAvg --------------------------------------------------------------


def check_per_fedavg(case):
  """Check the first order, with any rates of inner and outer steps."""
  task, (train, test) = case.task(), case.data()
  # The rate after the last round is that of the adaptation.
  alpha, beta = (
    case.get(f'{name}_per_round', case['lr_per_round'])
    for name in ('alpha', 'beta')
  )
  reading = {'beta': by_round([*beta, beta[-1]])}
  if beta == alpha:
    reading = {'protocol': 'paper'}
  elif set(beta) == {per_fedavg.RELEASED_BETA}:
    reading = {'protocol': 'released'}
  rate = by_round([*alpha, case['personalization']['lr']])
  reading['train'] = case.training(learning_rate=rate)
  reading['finetune'] = Finetuning(
    batch_size=test.index.shape[1], shuffle=False
  )
  (stage,) = build_stages(case, 'per_fedavg', task, **reading)
  stage.validate_clients(train)
  how = Replay(
    trained=lambda update: update.upload, views={'initial': 'initial'}
  )
  done = replay(case, stage.algorithm, how)
  check_adapted(case, task, stage.algorithm, done, test)


def check_adapted(case, task, algorithm, done, test):
  """One step on the first tests of a client, evaluated on the last.

  And two steps on its own tests, or on those of the last client of the round.
  """
  few, rest = (
    int(re.search(r'\d+', case['personalization'][part]).group())
    for part in ('support', 'query')
  )
  support = test._replace(index=test.index[:, :few], count=0 * test.count + few)
  query = test._replace(
    index=test.index[:, -rest:], count=0 * test.count + rest
  )

  def adapted(data, view):
    return views_of(algorithm, done, data, [view])[view]

  def check_logits(name, models, data):
    for i, logits in enumerate(evaluated(algorithm, models, data).logits):
      case.check(f'{name}/client{i}/logits', logits)

  batches = [batch_of(*client_rows(support, i)) for i in range(case['clients'])]
  before = [task.loss(done.server.params, batch, KEY(0)) for batch in batches]
  case.check('personalized/support_loss', before)
  check_logits('personalized', adapted(support, 'adapted'), query)
  models = adapted(test, 'adapted_twice')
  check_logits('helper', models, test)
  last = models[case['participants'][-1][-1]]
  check_logits('table', [last] * len(models), test)


DENG = 'apfl (deng et al. 2020 form, '
FEDPER = partial(
  check_method,
  name='fedper',
  kept=lambda head, up: {HERE: head or {}},
)
PROX = partial(check_with_term, name='fedprox')
SCAFFOLD = partial(
  check_method,
  name='scaffold',
  server=lambda server: {'global': server.params, 'c_global': server.variate},
  kept=lambda variate, uploaded: {'c_{0}/{1}': variate},
  run=jax.jit,
)
DITTO = partial(
  check_method,
  name='ditto',
  steps=lambda update: {'step_loss': losses_of(update.fits[1])},
  trained=None,
  kept=lambda own, up: {HERE: own},
)
CHECKS = {
  'fedavg with a smaller head learning rate': partial(
    check_method, name='fedavg'
  ),
  'fedavg on clients of different size': check_fedavg_ragged,
  'fedbabu of pfllib': check_pfllib_fedbabu,
  'fedbabu on clients of different size': partial(check_method, name='fedbabu'),
  'fedrs (binary form)': partial(check_method, name='fedrs'),
  'fedprox + fedbabu': PROX,
  'fedprox (fedconcat / niid-bench convention)': PROX,
  'fedprox': PROX,
  'moon (head-less form)': partial(check_with_term, name='moon'),
  'scaffold, option ii': SCAFFOLD,
  'scaffold, option ii, partial participation': SCAFFOLD,
  'fedper, as intended': partial(FEDPER, hp={'protocol': 'paper'}),
  'fedper, table mode': partial(FEDPER, hp={'protocol': 'released'}),
  'fedrep': check_fedrep,
  'ditto, as intended': DITTO,
  'ditto, table mode': partial(check_released_ditto, anchor='global'),
  'ditto, last version of the official code': partial(
    check_released_ditto, anchor='local'
  ),
  'pfedme (original)': check_pfedme,
  'pfedme of pfllib': check_pfllib_pfedme,
  'per-fedavg, first order': check_per_fedavg,
  'apfl of pfllib': check_apfl,
  f'{DENG}alpha adapted at every local step)': check_papers_apfl,
  f'{DENG}alpha adapted only at the first local step of each round)': (
    check_papers_apfl
  ),
  f'{DENG}w stepped before v, alpha adapted at every local step)': (
    check_papers_apfl
  ),
  'apfl as coded in the final superfed repository (fixed alpha, stale w) - '
  'not the published algorithm': partial(check_apfl, protocol='released'),
}
