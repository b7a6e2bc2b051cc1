"""What a private run spends: from its settings to noise, budget and words."""

from typing import Any

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.images import Shape
from fedjax_pfl.federated import accountant, privacy
from fedjax_pfl.federated.accountant import Plan, Rounds
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.settings import Settings


def private(
  stages: tuple[Stage, ...], settings: Settings, shape: Shape
) -> tuple[Stage, ...]:
  """Return the method with the noise that its settings ask for."""
  dp, plan = settings.dp, plan_of(settings, stages)
  noise = noise_of(settings, plan)
  mechanisms = []
  for rounds in plan:
    mechanism = privacy.Mechanism(
      dp.clip, noise, rounds.size, dp.clip_quantile, rounds.bands
    )
    if dp.clip_quantile and noise >= mechanism.largest_noise:
      raise bad_input(
        'dp.clip_quantile',
        got=dp.clip_quantile,
        expected=f'0 with {rounds.size:g} clients a round and noise of '
        f'{noise:.3g} clips: to count who is below the clip takes less than '
        f'{mechanism.largest_noise:g}',
        choices=['dp.clip_quantile=0', 'more clients a round', 'less noise'],
        cause='an adaptive clip where a cohort is small',
      )
    mechanisms.append(mechanism)
  if dp.bands == 1:
    return tuple(map(privacy.private, stages, mechanisms))
  # The server keeps noise of these shapes.
  independent = [mechanism._replace(bands=1) for mechanism in mechanisms]
  changes = privacy.changes_of(
    tuple(map(privacy.private, stages, independent)),
    shapes_of_clients(shape, settings.data.num_seen_clients),
  )
  return tuple(map(privacy.private, stages, mechanisms, changes))


def plan_of(
  settings: Settings, stages: tuple[Stage, ...], done: int | None = None
) -> Plan:
  """Return the first `done` rounds of a run, or all, as the budget has them."""
  num_clients, training = settings.data.num_seen_clients, settings.training
  is_random = training.sampling != 'fixed'
  drawn = cohort_size(num_clients, training.client_fraction)
  if is_random:
    drawn = num_clients * training.client_fraction
  left = sum(stage.rounds for stage in stages) if done is None else done
  plan = []
  for stage in stages:
    number = min(stage.rounds, left)
    left -= number
    how = (num_clients, num_clients)
    if not stage.full_participation:
      how = (drawn, num_clients, is_random, settings.dp.bands)
    plan.append(Rounds(number, *how))
  return tuple(plan)


def noise_of(settings: Settings, plan: Plan) -> float:
  """Return the noise multiplier of all rounds: given, or from the budget."""
  dp = settings.dp
  if dp.noise_multiplier:
    return dp.noise_multiplier
  return accountant.find_noise(dp.epsilon, dp.delta, plan)


def spent(
  settings: Settings, stages: tuple[Stage, ...], done: int | None = None
) -> float:
  """Return the epsilon of so many rounds, or of all."""
  noise = noise_of(settings, plan_of(settings, stages))
  plan = plan_of(settings, stages, done)
  return accountant.epsilon_of(noise, settings.dp.delta, plan)


def summary(settings: Settings, stages: tuple[Stage, ...]) -> dict[str, Any]:
  """Return what result.json says of privacy."""
  dp, plan = settings.dp, plan_of(settings, stages)
  relation = 'replace one' if accountant.replaces(plan) else 'add or remove one'
  return {
    'epsilon': spent(settings, stages),
    'delta': dp.delta,
    'noise_multiplier': noise_of(settings, plan),
    'clip': dp.clip,
    'neighbours': relation,
  }


def checked(
  settings: Settings, stages: tuple[Stage, ...], shape: Shape
) -> list[str]:
  """Return what is logged about privacy; refuse a method that has none."""
  shapes = shapes_of_clients(shape, settings.data.num_seen_clients)
  whole = privacy.check(stages, shapes, settings.algorithm)
  about = summary(settings, stages)
  words = [
    'Privacy of clients ({neighbours}): epsilon {epsilon:.3g} at delta '
    '{delta:g} after all rounds, noise of {noise_multiplier:.4g} clips of '
    '{clip:g} in a sum.'.format(**about)
  ]
  if whole:
    words.append(
      f'Clipped as it is, being no change of a model: {", ".join(whole)}.'
    )
  return words
