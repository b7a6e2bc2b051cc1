"""The privacy of a run: its noise, and what its rounds spend."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_pfl import algorithms
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import PyTree, Task
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.images import Shape
from fedjax_pfl.federated import accountant, privacy
from fedjax_pfl.federated.accountant import Plan, Rounds
from fedjax_pfl.federated.sampling import Sampler
from fedjax_pfl.settings import PrivacySettings, Settings, replace
from fedjax_pfl.training.build_method import make_sampler, make_stages


class Budget(NamedTuple):
  """What is added to the rounds of a run, and what they cost."""

  dp: PrivacySettings
  plan: Plan  # of each stage: its rounds, and how clients are drawn
  noise: float  # multiplier: given, or from dp.epsilon
  changes: tuple[PyTree, ...]  # of each stage: shapes of what a client changes
  senders: tuple[float, ...]  # of each stage: clients that do not drop out

  def around(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the method with this noise."""
    each = zip(stages, self.mechanisms(), self.changes, strict=True)
    return tuple(itertools.starmap(privacy.private, each))

  def mechanisms(self) -> list[privacy.Mechanism]:
    """Return what each stage does to uploads."""
    dp, pairs = self.dp, zip(self.plan, self.senders, strict=True)
    return [
      privacy.Mechanism(dp.clip, self.noise, n, dp.clip_quantile, rounds.bands)
      for rounds, n in pairs
    ]

  def spent(self, done: int) -> float:
    """Return the epsilon of so many rounds."""
    plan = []
    for rounds in self.plan:
      number = min(rounds.number, done)
      plan.append(rounds._replace(number=number))
      done -= number
    return accountant.epsilon_of(self.noise, self.dp.delta, tuple(plan))

  def summary(self) -> dict[str, Any]:
    """Return what result.json says of privacy."""
    return {
      'epsilon': self.spent(sum(rounds.number for rounds in self.plan)),
      'delta': self.dp.delta,
      'noise_multiplier': self.noise,
      'clip': self.dp.clip,
      'neighbours': accountant.neighbours(self.plan),
      'theorem': accountant.theorem(self.plan),
    }


def make_budget(
  settings: Settings, task: Task, shape: Shape, log: Callable[[str], None]
) -> Budget:
  """Return the budget of a run; refuse a method that has none.

  The method is traced on shapes, so that `task` may be an outline.
  """
  stages = make_stages(settings, task)
  dp, plan = settings.dp, _plan_of(settings, stages, make_sampler(settings))
  noise = dp.noise_multiplier or accountant.find_noise(
    dp.epsilon, dp.delta, plan
  )
  rate = settings.training.dropout_rate
  senders = tuple(
    rounds.size * (1 - rate * (not stage.full_participation))
    for rounds, stage in zip(plan, stages, strict=True)
  )
  budget = Budget(dp, plan, noise, (None,) * len(stages), senders)
  for mechanism in budget.mechanisms():
    largest = mechanism.largest_noise
    if dp.clip_quantile and noise >= largest:
      raise bad_input(
        'dp.clip_quantile',
        got=dp.clip_quantile,
        expected=f'0 with {mechanism.expected:g} clients a round and noise of '
        f'{noise:.3g} clips: to count who is below the clip takes less than '
        f'{largest:g}',
        choices=['dp.clip_quantile=0', 'more clients a round', 'less noise'],
        cause='an adaptive clip where a cohort is small',
      )
  independent = tuple(rounds._replace(bands=1) for rounds in plan)
  around = budget._replace(plan=independent).around
  shapes = shapes_of_clients(shape, settings.data.num_seen_clients)
  # By the names of a method's uploads; what arrives of them is the same.
  plain = make_stages(replace(settings, compression='none'), task)
  name = settings.algorithm
  unfit = getattr(algorithms.load(name), 'NOT_CLIPPED', '')
  whole = privacy.check(around(plain), shapes, name, unfit)
  more = ', and of what it takes back from the rounds before' * (dp.bands > 1)
  log(
    'Privacy of clients ({neighbours}): epsilon {epsilon:.3g} at delta '
    '{delta:g} after all rounds, noise of {noise_multiplier:.4g} clips of '
    '{clip:g} in a sum{more}. By the bound of {theorem}.'.format(
      **budget.summary(), more=more
    )
  )
  if whole:
    log(f'Clipped as it is, being no change of a model: {", ".join(whole)}.')
  if dp.bands == 1:
    return budget
  # The server keeps noise of these shapes.
  changes = privacy.changes_of(around(stages), shapes)
  return budget._replace(changes=tuple(changes))


def _plan_of(
  settings: Settings, stages: tuple[Stage, ...], sampler: Sampler
) -> Plan:
  """Return the rounds of a run as the accountant has them."""
  clients, bands = settings.data.num_seen_clients, settings.dp.bands
  drawn = sampler.mean_size, clients, sampler.accounting, bands
  return tuple(
    Rounds(stage.rounds, clients, clients)
    if stage.full_participation
    else Rounds(stage.rounds, *drawn)
    for stage in stages
  )
