"""SuPerFed: the published objective, and those of its first and final code."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import superfed
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.types import Batch
from golden_cases import rounds
from golden_cases.case_inputs import (
  KEY,
  as_given,
  case_task,
  client_rows,
  clients_data,
  of,
  training,
)

MIXINGS = {'mm': 'model', 'lm': 'layer'}
PROTOCOLS = {
  'published form': 'paper',
  'form of the first code version': 'first_code',
  'form of the final code version': 'final_code',
}


def check_rounds(case, protocol):
  federation = case['phase'].count('I')
  assert case['phase'] == sorted(case['phase'])
  hp = superfed.HParams(
    training(case),
    mixing=MIXINGS[case['mode']],
    mu=case['mu'],
    nu=case['nu'],
    phase_start=start_of_phase(federation, case['rounds'], protocol),
    grid=(0.5,),
    protocol=protocol,
    pairing='stale',  # clients then keep w_f, which is compared
  )
  task = case_task(case)
  stages = superfed.build(task, hp)
  assert [stage.rounds for stage in stages if stage.name == 'federation'] == (
    [federation] if federation else []
  )
  train, test = clients_data(case)
  drawn = iter(recorded_ratios(case))
  with mock.patch.object(superfed, 'draw_ratios', partial(next_of, drawn)):
    done = compare(case, as_one(case, stages), train)
  assert next(drawn, None) is None
  fresh = superfed.build(task, hp._replace(pairing='fresh'))[-1].algorithm
  compare_models(case, fresh, done, train, test)
  case.finish(inputs=('lambda/',))


def start_of_phase(federation, num_rounds, protocol):
  """Return an L in the middle of those with so many rounds of federation."""
  early = superfed.READINGS[protocol].rounds_early
  return min(1.0, (federation + early + 0.5) / num_rounds)


def as_one(case, stages):
  """Return both stages as one algorithm; it begins with given local models."""
  last = stages[-1].algorithm
  inputs = case.load(case['common'])
  twins = superfed.twin_mask(case_task(case), 'kernels')
  given = iter(
    case.subtree(inputs, f'init_local/client{i}/')
    for i in range(case['clients'])
  )

  def init_client(server, data, rng):
    own = trees.select(as_given(next(given)), twins)
    return superfed.Client(own, server.params)

  def local_update(down, *args):
    ends = np.cumsum([stage.rounds for stage in stages])
    stage = stages[int(np.searchsorted(ends, int(down.round), 'right'))]
    return stage.algorithm.local_update(down, *args)

  return last._replace(init_client=init_client, local_update=local_update)


def recorded_ratios(case):
  """Yield the lambdas of all steps of personalisation, round by round."""
  for number, cohort in enumerate(case['participants'], start=1):
    for i in cohort if case['phase'][number - 1] == 'II' else ():
      steps = case.arrays[f'lambda/client{i}/round{number}']
      yield from jnp.asarray(steps).reshape(len(steps), -1)


def next_of(drawn, rng, number):
  """Return the next lambdas; the shapes of a loss are asked with no key."""
  if isinstance(rng, jax.core.Tracer):
    return jnp.zeros(number)
  ratios = next(drawn)
  assert ratios.shape == (number,)
  return ratios


def compare(case, algorithm, train):
  objectives = {}
  for done in rounds.run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      ((_, info),) = update.fits
      rounds.check_steps(case, i, done.number, info)
      check_parts(case, i, done.number, info)
      objectives[done.number, i] = update.metrics['loss']
    for i, client in enumerate(done.clients):
      place = f'client{i}/round{done.number}'
      case.check_tree(f'{place}/fed', client.federated)
      case.check_tree(f'{place}/local', without_holes(client.local))
    case.check_tree(f'global/round{done.number}', done.server.params)
  rounds.check_losses(case, objectives)
  return done


def check_parts(case, i, number, info):
  """Compare what the loss is made of, where that is recorded."""
  steps = int(info.num_steps)
  none = jnp.zeros(steps)  # federation has no cosine
  parts = {
    'step_ce': info.reports['cross_entropies'],
    'step_prox': info.reports['proximities'],
    'step_cos2': info.reports.get('squared_cosines', none),
  }
  for name, values in parts.items():
    place = f'{name}/client{i}/round{number}'
    if place in case.digests:
      case.check(place, values[:steps])


def compare_models(case, algorithm, done, train, test):
  """Compare the global model mixed with each client's own, half and half."""
  for i, client in enumerate(done.clients):
    models = algorithm.personalize(done.server, client, of(train, i), KEY(0))
    x, _ = client_rows(test, i)
    logits = algorithm.predict(models['mix_0.5'], x, jnp.ones(len(x)))
    case.check(f'personalized/client{i}/logits', logits)


def without_holes(tree):
  return {
    layer: {name: leaf for name, leaf in leaves.items() if leaf is not None}
    for layer, leaves in tree.items()
  }


def check_single_batch(case):
  arrays = dict(case.arrays)
  anchor, federated, own = (
    as_given(case.subtree(arrays, f'{name}/')) for name in ('w_g', 'w_f', 'w_l')
  )
  own = {layer: {'bias': None, **leaves} for layer, leaves in own.items()}
  pair = superfed.Client(own, federated)
  for term, objective in terms(case, anchor).items():
    value, grads = jax.value_and_grad(objective)(pair)
    case.check(f'{term}/value', value)
    case.check_tree(f'{term}/grad_f', grads.federated)
    if any(key.startswith(f'{term}/grad_l') for key in arrays):
      case.check_tree(f'{term}/grad_l', without_holes(grads.local))
  at_anchor = pair._replace(federated=anchor)
  norms = terms(case, anchor)['prox_norm']
  value, grads = jax.value_and_grad(norms)(at_anchor)
  case.check('prox_norm_at_zero/value', value)
  most = max(jnp.abs(leaf).max() for leaf in jax.tree.leaves(grads.federated))
  case.check('prox_norm_at_zero/max_abs_grad', most)
  case.finish(inputs=('w_', 'x', 'y', 'lambda/'))


def terms(case, anchor):
  """Return {term: function of both models} for one batch."""
  task = case_task(case)
  twins = superfed.twin_mask(task, 'kernels')
  x, y = jnp.asarray(case.arrays['x']), jnp.asarray(case.arrays['y'])
  batch = Batch(x, y, jnp.ones(len(x)))
  ratios = {
    mode: jnp.asarray(case.arrays[f'lambda/{mode}']).ravel() for mode in MIXINGS
  }

  def total(mode, drawn, mu, nu):
    hp = superfed.HParams(mixing=MIXINGS[mode], mu=mu, nu=nu)

    def objective(pair):
      loss = superfed.mixed_objective(task, hp, anchor)
      with mock.patch.object(superfed, 'draw_ratios', lambda rng, n: drawn):
        return loss(pair, batch, KEY(0))[0]

    return objective

  def cosine(pair, offset):
    kernels = trees.select(pair.federated, twins)
    return losses.squared_cosine(kernels, pair.local, offset)

  factors = case['mu'], case['nu']
  return {
    **{f'ce_{mode}': total(mode, ratios[mode], 0, 0) for mode in MIXINGS},
    **{
      f'total_{mode}': total(mode, ratios[mode], *factors) for mode in MIXINGS
    },
    'total_lambda0': total('mm', jnp.zeros(1), *factors),
    'prox_squared': lambda pair: losses.sum_squares(pair.federated, anchor),
    'prox_norm': lambda pair: losses.sum_norms(pair.federated, anchor),
    'cos2': partial(cosine, offset=0.0),
    'cos2_eps': partial(cosine, offset=1e-6),
  }


CHECKS = {
  f'superfed-{mode} ({form})': partial(check_rounds, protocol=protocol)
  for mode in MIXINGS
  for form, protocol in PROTOCOLS.items()
} | {'superfed loss terms and gradients on one batch': check_single_batch}
