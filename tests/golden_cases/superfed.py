"""SuPerFed: the published objective, and those of its first and final code."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import superfed
from fedjax_pfl.core import trees
from golden_cases.inputs import case_task, clients_data, given, training
from golden_cases.rounds import Replay, check_views, replay, rows

MIXINGS = {'mm': 'model', 'lm': 'layer'}
PROTOCOLS = {
  'published form': 'paper',
  'form of the first code version': 'first_code',
  'form of the final code version': 'final_code',
}


def check_rounds(case, protocol):
  num_federated = case['phase'].count('I')
  assert case['phase'] == sorted(case['phase'])
  early = superfed.READINGS[protocol].rounds_early
  hp = superfed.HParams(
    training(case),
    mixing=MIXINGS[case['mode']],
    mu=case['mu'],
    nu=case['nu'],
    # In the middle of those with so many rounds of federation.
    phase_start=min(1.0, (num_federated + early + 0.5) / case['rounds']),
    grid=(0.5,),
    protocol=protocol,
    pairing='stale',  # clients then keep w_f, which is compared
  )
  task = case_task(case)
  stages = superfed.build(task, hp)
  lengths = {stage.name: stage.rounds for stage in stages}
  assert lengths.get('federation', 0) == num_federated
  how = Replay(
    steps,
    trained=None,
    kept=lambda client, up: {
      '{0}/{1}/fed': client.federated,
      '{0}/{1}/local': client.local,
    },
  )
  drawn = iter(recorded_ratios(case))
  with mock.patch.object(superfed, 'draw_ratios', partial(next_of, drawn)):
    done = replay(case, as_one(case, stages), how)
  assert next(drawn, None) is None
  # The global model mixed with each client's own, half and half.
  fresh = superfed.build(task, hp._replace(pairing='fresh'))[-1].algorithm
  names = {'personalized': 'mix_0.5'}
  check_views(case, fresh, done, *clients_data(case), names)
  case.finish('lambda/')


def steps(update):
  """Return the objective and its parts; federation has no cosine."""
  info = update.fits[0][1]
  values = {
    'step_loss': info.losses,
    'step_ce': info.reports['cross_entropies'],
    'step_prox': info.reports['proximities'],
    'step_cos2': info.reports.get('squared_cosines', 0 * info.losses),
  }
  return {name: rows(each, update) for name, each in values.items()}


def as_one(case, stages):
  """Return both stages as one algorithm; it begins with given local models."""
  last = stages[-1].algorithm
  inputs = case.load(case['common'])
  twins = superfed.twin_mask(case_task(case), 'kernels')
  local = iter(
    given(case, f'init_local/client{i}', inputs) for i in range(case['clients'])
  )

  def init_client(server, data, rng):
    return superfed.Client(trees.select(next(local), twins), server.params)

  def local_update(down, *args):
    ends = np.cumsum([stage.rounds for stage in stages])
    stage = stages[int(np.searchsorted(ends, int(down.round), 'right'))]
    return stage.algorithm.local_update(down, *args)

  return last._replace(init_client=init_client, local_update=local_update)


def recorded_ratios(case):
  """Yield the lambdas of all steps of personalisation, round by round."""
  for number, cohort in enumerate(case['participants'], start=1):
    for i in cohort if case['phase'][number - 1] == 'II' else ():
      drawn = case.arrays[f'lambda/client{i}/round{number}']
      yield from jnp.asarray(drawn).reshape(len(drawn), -1)


def next_of(drawn, rng, number):
  """Return the next lambdas; the shapes of a loss are asked with no key."""
  if isinstance(rng, jax.core.Tracer):
    return jnp.zeros(number)
  ratios = next(drawn)
  assert ratios.shape == (number,)
  return ratios


CHECKS = {
  f'superfed-{mode} ({form})': partial(check_rounds, protocol=protocol)
  for mode in MIXINGS
  for form, protocol in PROTOCOLS.items()
}
