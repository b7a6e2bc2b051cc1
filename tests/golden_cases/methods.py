"""The cases of whole rounds: what each method computes of what they store."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_pfl.algorithms import load
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.federated.rounds import init_states, make_round
from golden_cases.inputs import (
  KEY,
  batch_of,
  case_task,
  client_rows,
  clients_data,
  of,
  stepwise,
  training,
)
from golden_cases.rounds import (
  Replay,
  accuracies,
  build,
  check_models,
  check_views,
  evaluated,
  losses_of,
  replay,
  rows,
)

HERE = '{0}/{1}'  # client{i}/round{n}
VIEWS = {'initial': 'initial', 'personalized': 'finetuned'}
OWN = {'initial': 'initial', 'personalized': 'personal'}
PERSONAL = {'personalized': 'personal'}


def views_of(case, names=VIEWS):
  return names if case.get('personalization') else {}


# ---- One global model --------------------------------------------------------


def check_global(case, name, fields=()):
  """Check a method of which cases have no more than its global model."""
  hp = {field: case[field] for field in fields if field in case.settings}
  algorithm = build(case, name, **hp)
  replay(case, algorithm, Replay(losses_of(), views=views_of(case)))
  case.finish()


def check_fedavg_ragged(case):
  """Check the rounds of the engine, too: one compiled program a round."""
  check_global(case, 'fedavg')
  if training(case).aggregation == 'uniform':  # one of them is enough
    return
  algorithm, (train, _) = build(case, 'fedavg'), clients_data(case)
  states = init_states(algorithm, train, KEY(0))
  round_fn = make_round(algorithm)
  for number, cohort in enumerate(case['participants'], start=1):
    *states, _ = round_fn(*states, jnp.array(cohort), train, KEY(0))
    case.check(f'global/round{number}', states[0].params)


def check_with_term(case, name, **hp):
  """Check a method whose loss reports the cross-entropy beside the objective.

  A case has cross-entropies alone, or the objective and them beside it.
  """

  def steps(update):
    info = update.fits[0][1]
    total, alone = (
      rows(values, update)
      for values in (info.losses, info.reports['cross_entropies'])
    )
    if any(key.startswith('step_ce/') for key in case.arrays):
      return {'step_loss': total, 'step_ce': alone}
    return {'step_loss': alone}

  algorithm = build(case, name, **hp)
  replay(case, algorithm, Replay(steps, views=views_of(case)))
  case.finish()


def check_fedprox(case):
  part = case.get('local_update_part', 'full')
  check_with_term(case, 'fedprox', mu=case['mu'], trainable=part)


def check_moon(case):
  temperature = case['temperature']
  check_with_term(case, 'moon', mu=case['mu'], temperature=temperature)


def check_scaffold(case):
  algorithm = build(case, 'scaffold')
  how = Replay(
    losses_of(),
    server=lambda server: {
      'global': server.params,
      'c_global': algorithm.download(server, None).variate,
    },
    kept=lambda variate, uploaded: {'c_{0}/{1}': variate},
  )
  replay(case, algorithm, how)
  case.finish()


# ---- Parts and whole models that stay with their clients ---------------------


def check_fedper(case, protocol):
  shared = case.get('aggregated_part', 'body')
  algorithm = build(case, 'fedper', shared=shared, protocol=protocol)
  how = Replay(
    losses_of(), kept=lambda head, up: {HERE: head or {}}, views=VIEWS
  )
  replay(case, algorithm, how)
  case.finish()


def check_fedrep(case):
  """Check the released reading, and the paper's where it is adapted longer."""
  personal, task = case['personalization'], case_task(case)
  assert personal['momentum'] == case['momentum']
  # After the last round the clock shows the learning rate of the test.
  rates = jnp.array([*case['lr_per_round'], personal['lr']], float)

  def reading(protocol, epochs=1):
    size = case['batch_size']
    return build(
      case,
      'fedrep',
      task,
      train=training(case)._replace(learning_rate=lambda clock: rates[clock]),
      finetune=Finetuning(epochs=(epochs,), batch_size=size, shuffle=False),
      body_epochs=personal['body_epochs'],
      momentum=case['momentum'],
      protocol=protocol,
    )

  algorithm, (train, test) = reading('released'), clients_data(case)
  stored = [task.init(KEY(0))] * case['clients']

  def each(done):
    for i, update in done.updates.items():
      stored[i] = update.fits[0][0]

  how = Replay(losses_of(), kept=lambda head, up: {HERE: head})
  done = replay(case, algorithm, how, each)
  check_models(case, algorithm, stored, test, 'stored')
  check_views(case, algorithm, done, train, test, {'initial': 'initial'})
  matches = [re.match(r'personalized_(\d+)/', key) for key in case.arrays]
  epochs = {m[0].rstrip('/'): int(m[1]) for m in matches if m}
  for prefix, number in {
    'personalized': personal['head_epochs'],
    **epochs,
  }.items():
    is_released = number == case['local_epochs']
    other = algorithm if is_released else reading('paper', number)
    check_views(case, other, done, train, test, {prefix: 'finetuned'})
  case.finish()


def check_ditto(case):
  algorithm = build(
    case,
    'ditto',
    lam=case['lambda'],
    personal_momentum=case.get('personal_momentum', 0.0),
    personal_epochs=case.get('personal_epochs'),
  )
  how = Replay(losses_of(1), None, lambda own, up: {HERE: own}, views=OWN)
  replay(case, algorithm, how)
  case.finish()


def check_released_ditto(case, anchor):
  hp = {'lam': case['lambda'], 'protocol': 'released', 'anchor': anchor}
  algorithm, (train, test) = build(case, 'ditto', **hp), clients_data(case)
  table, personalize = [], stepwise(algorithm.personalize)

  def each(done):
    models = [
      personalize(done.server, client, of(train, i), KEY(0))['personal']
      for i, client in enumerate(done.clients)
    ]
    table.append(accuracies(algorithm, models, test))

  how = Replay(losses_of(-1), lambda update: update.upload, views=OWN)
  replay(case, algorithm, how, each)
  case.check('table/accuracy', table)
  case.finish()


def check_pfedme(case):
  train = training(case)
  if 'outer_lr' in case.settings:
    rate = optax.constant_schedule(case['outer_lr'])
    train = train._replace(learning_rate=rate)
  algorithm = build(
    case,
    'pfedme',
    train=train,
    inner_steps=case['inner_steps'],
    inner_lr=case['inner_lr'],
    lam=case['lambda'],
    beta=case.get('beta', 1.0),
  )

  def alone(update):
    steps = int(update.metrics['num_steps'])
    return update.metrics['cross_entropies'][:steps]

  how = Replay(
    lambda update: {
      'step_loss': alone(update).reshape(-1, case['inner_steps'])
    },
    trained=None,
    kept=lambda client, up: {
      f'{HERE}/w': up,
      f'{HERE}/theta': client.personal,
    },
    loss=lambda update: alone(update).mean(),
    views=PERSONAL,
    run=jax.jit,
  )
  replay(case, algorithm, how)
  case.finish()


def check_apfl(case, **hp):
  algorithm, alphas = build(case, 'apfl', **hp), []

  def steps(update):
    """Return both losses before, and alpha after, every step."""
    metrics, number = update.metrics, int(update.metrics['num_steps']) // 2
    later = jnp.append(metrics['alphas'][1:number], update.client.alpha)
    return {
      'step_loss': metrics['losses'][:number],
      'step_loss_mixed': metrics['mixed_losses'][:number],
      'alpha_trace': later,
    }

  how = Replay(
    steps,
    trained=None,
    kept=lambda client, up: {f'{HERE}/w': up, f'{HERE}/v': client.private},
    views=PERSONAL,
  )
  replay(
    case,
    algorithm,
    how,
    lambda done: alphas.append([client.alpha for client in done.clients]),
  )
  case.check('alpha', np.transpose(alphas))  # [client, round]
  case.finish()


def check_papers_apfl(case):
  when = case.get('alpha_update', 'every_step').removesuffix('_of_round')
  order = case.get('update_order', 'simultaneous')
  check_apfl(case, alpha=case['alpha_init'], adapt=when, order=order)


def check_released_apfl(case):
  decay = case['weight_decay_v']
  hp = {'alpha': case['alpha'], 'private_decay': decay}
  check_apfl(case, protocol='released', **hp)


# ---- Per-FedAvg --------------------------------------------------------------


def check_per_fedavg(case):
  """Check the first order, with any rates of inner and outer steps."""
  module, task = load('per_fedavg'), case_task(case)
  # The rate after the last round is that of the adaptation.
  alpha, beta = (
    case.get(f'{name}_per_round', case['lr_per_round'])
    for name in ('alpha', 'beta')
  )
  reading = {'beta': schedule([*beta, beta[-1]])}
  if beta == alpha:
    reading = {'protocol': 'paper'}
  elif set(beta) == {module.RELEASED_BETA}:
    reading = {'protocol': 'released'}
  train, test = clients_data(case)
  rate = schedule([*alpha, case['personalization']['lr']])
  hp = module.HParams(
    training(case)._replace(learning_rate=rate),
    Finetuning(batch_size=test.index.shape[1], shuffle=False),
    **reading,
  )
  (stage,) = module.build(task, hp)
  stage.validate_clients(train)
  algorithm = stage.algorithm
  how = Replay(losses_of(), lambda update: update.upload)
  how = how._replace(views={'initial': 'initial'})
  server = replay(case, algorithm, how).server
  check_adapted(case, task, algorithm, server, test)
  case.finish()


def schedule(rates):
  rates = jnp.asarray(rates, float)
  return lambda clock: rates[clock]


def check_adapted(case, task, algorithm, server, test):
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
    models = stepwise(algorithm.personalize)(server, (), data, KEY(0))
    return models[view]

  before, clients = [], range(case['clients'])
  for i in clients:
    x, y = client_rows(support, i)
    batch = batch_of(x, y)
    before.append(task.loss(server.params, batch, KEY(0)))
    model = adapted(of(support, i), 'adapted')
    logits, _, _ = evaluated(algorithm, model, query, i)
    case.check(f'personalized/client{i}/logits', logits)
  case.check('personalized/support_loss', before)
  models = [adapted(of(test, i), 'adapted_twice') for i in clients]
  last = models[case['participants'][-1][-1]]
  for i, model in enumerate(models):
    for name, other in (('helper', model), ('table', last)):
      logits, _, _ = evaluated(algorithm, other, test, i)
      case.check(f'{name}/client{i}/logits', logits)


DENG = 'apfl (deng et al. 2020 form, '
CHECKS = {
  **{
    name: partial(check_global, name=module, fields=fields)
    for name, module, fields in (
      ('fedavg', 'fedavg', ()),
      (
        'fedavg with a smaller head learning rate',
        'fedavg',
        ('head_lr_ratio',),
      ),
      ('fedbabu', 'fedbabu', ()),
      ('fedbabu on clients of different size', 'fedbabu', ()),
      ('fedrs (binary form)', 'fedrs', ('alpha', 'graded')),
      ('fedlc', 'fedlc', ('tau',)),
    )
  },
  'fedavg on clients of different size': check_fedavg_ragged,
  'fedprox': check_fedprox,
  'fedprox + fedbabu': check_fedprox,
  'fedprox (fedconcat / niid-bench convention)': check_fedprox,
  'moon (head-less form)': check_moon,
  'scaffold, option ii': check_scaffold,
  'scaffold, option ii, partial participation': check_scaffold,
  'fedper, as intended': partial(check_fedper, protocol='paper'),
  'fedper, table mode': partial(check_fedper, protocol='released'),
  'fedrep': check_fedrep,
  'ditto, as intended': check_ditto,
  'ditto, table mode': partial(check_released_ditto, anchor='global'),
  'ditto, last version of the official code': partial(
    check_released_ditto, anchor='local'
  ),
  'pfedme (original)': check_pfedme,
  'per-fedavg, first order': check_per_fedavg,
  f'{DENG}alpha adapted at every local step)': check_papers_apfl,
  f'{DENG}alpha adapted only at the first local step of each round)': (
    check_papers_apfl
  ),
  f'{DENG}w stepped before v, alpha adapted at every local step)': (
    check_papers_apfl
  ),
  'apfl as coded in the final superfed repository (fixed alpha, stale w) - '
  'not the published algorithm': check_released_apfl,
}
