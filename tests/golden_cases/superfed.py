"""SuPerFed: the published objective, and those of its first and final code."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import superfed
from fedjax_pfl.core import trees
from golden_cases.inputs import steps_of
from golden_cases.rounds import Replay, check_views, replay

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
    case.training(),
    mixing=MIXINGS[case['mode']],
    mu=case['mu'],
    nu=case['nu'],
    # In the middle of those with so many rounds of federation.
    phase_start=min(1.0, (num_federated + early + 0.5) / case['rounds']),
    grid=(0.5,),
    protocol=protocol,
    pairing='stale',  # clients then keep w_f, which is compared
  )
  task = case.task()
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
  check_views(case, fresh, done, names)


def steps(update):
  """Return the objective and its parts; federation has no cosine."""
  (fit,) = update.fits
  losses, reports = fit[1].losses, fit[1].reports
  values = {
    'step_loss': losses,
    'step_ce': reports['cross_entropies'],
    'step_prox': reports['proximities'],
    'step_cos2': reports.get('squared_cosines', 0 * losses),
  }
  return {name: steps_of(fit, each) for name, each in values.items()}


def as_one(case, stages):
  """Return both stages as one algorithm; it begins with given local models."""
  last = stages[-1].algorithm
  twins = superfed.twin_mask(case.task(), 'kernels')
  local = (
    case.params(f'init_local/client{i}', case.common)
    for i in range(case['clients'])
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
      (drawn,) = case.given(f'lambda/client{i}/round{number}')
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
