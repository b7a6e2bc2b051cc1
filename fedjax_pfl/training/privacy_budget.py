"""The privacy of a run: its noise, what its rounds spend, and what is told.

A start counts: the clients of a run may be those of the run that `init_from`
names, whose rounds are composed with its own, at the delta of this run.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.around import accountant, privacy
from fedjax_pfl.around.accountant import Plan, Rounds, neighbours
from fedjax_pfl.core import chacha, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import AnyPath, ClientData, Key, PyTree, Task
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import outline
from fedjax_pfl.runs import run_dir, secret
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import Settings, parse_config, replace
from fedjax_pfl.training.build_method import (
  build_stages,
  call_method,
  make_sampler,
)


class Start(NamedTuple):
  """What the model of `init_from` has spent; nothing, without one."""

  model: str = ''  # its digest
  plan: Plan = ()  # rounds with their noise
  no_budget: str = ''  # why nothing bounds what it tells; '' if something does


NO_START = Start()


class Open:
  """A run of which everything may be told."""

  is_private = False

  def mechanisms(self) -> Sequence[privacy.Mechanism]:
    """Return what each stage does to uploads; () for nothing."""
    return ()

  def streams(self, run: Run) -> dict[str, Key]:
    """Return keys in the place of those that follow from the seed."""
    return {}

  def rounds_key(self, key: Key, stage_number: int) -> Key:
    """Return the key of a stage's rounds, of which each takes its own."""
    return key

  def traffic(
    self, stage_number: int, rounds: int, joined: float, sent: float
  ) -> tuple[float, float]:
    """Return how many downloads and uploads of these rounds are told."""
    return joined, sent

  def spent(self, done: int) -> dict[str, float]:
    """Return what a line of metrics says of the budget after a round."""
    return {}

  def saved_clients(self, clients: tuple[int, ...]) -> tuple[int, ...]:
    """Return the clients whose models are written."""
    return clients

  def summary(self) -> dict[str, Any]:
    """Return what result.json says of the budget."""
    return {}

  def without_noise(self, state: PyTree) -> PyTree | None:
    """Return the last state without noise; None if it has none."""
    return None


@dataclasses.dataclass(frozen=True)
class Budget(Open):
  """A run whose uploads are clipped and noised: what that adds, and costs."""

  dp: privacy.Privacy
  plan: Plan  # of each stage: its rounds, and how clients are drawn
  noise: float  # multiplier: given, or from dp.epsilon
  changes: tuple[PyTree, ...]  # of each stage: shapes of what a client changes
  senders: tuple[float, ...]  # of each stage: clients that do not drop out
  start: Start = NO_START

  is_private = True

  def mechanisms(self):
    dp, each = self.dp, zip(self.plan, self.senders, self.changes, strict=True)
    return [
      privacy.Mechanism(
        dp.clip, self.noise, n, dp.clip_quantile, rounds.bands, change
      )
      for rounds, n, change in each
    ]

  def epsilon(self, done: int) -> float:
    """Return the epsilon of so many rounds, and of those of the start."""
    plan = [*self.start.plan]
    for rounds in self.plan:
      number = min(rounds.number, done)
      plan.append(rounds._replace(number=number))
      done -= number
    return accountant.epsilon_of(self.noise, self.dp.delta, tuple(plan))

  @property
  def epsilon_name(self) -> str:
    """Return what epsilon is called wherever it is shown."""
    is_private = self.dp.noise_seed is None and not self.start.no_budget
    return 'epsilon' if is_private else 'epsilon_not_private'

  def about(self) -> dict[str, Any]:
    """Return the budget, its rounds and its start, for result.json."""
    start, plan = self.start, (*self.start.plan, *self.plan)
    noisy = [rounds._replace(noise=self.noise) for rounds in self.plan]
    in_json = lambda plan: [rounds._asdict() for rounds in plan]
    about = start._asdict() | {'plan': in_json(start.plan)}
    return {
      **self.spent(sum(rounds.number for rounds in self.plan)),
      'delta': self.dp.delta,
      'noise_multiplier': self.noise,
      'clip': self.dp.clip,
      'neighbours': neighbours(plan),
      'theorem': accountant.theorem(plan),
      'plan': in_json(noisy),
      **({'start': about} if start != NO_START else {}),
    }

  def streams(self, run):
    """Return keys of cohorts and rounds, which nobody can guess."""
    run.write_note()
    dp = self.dp
    if dp.noise_seed is None:
      digits = run.secret(dp.bands > 1)
      key = chacha.key_of(bytes.fromhex(digits))
    else:
      key = jax.random.key(dp.noise_seed, impl=chacha.IMPL)
    cohorts, rounds = jax.random.split(key)
    return {'cohorts': cohorts, 'rounds': rounds}

  def rounds_key(self, key, stage_number):
    """Return a key of the stage's own, even if its clock begins again.

    Noise that is drawn twice can be subtracted.
    """
    return jax.random.fold_in(key, stage_number)

  def traffic(self, stage_number, rounds, joined, sent):
    """Return expected numbers: how many came is not to be seen."""
    joining, sending = self.plan[stage_number].size, self.senders[stage_number]
    return rounds * joining, rounds * sending

  def spent(self, done):
    return {self.epsilon_name: self.epsilon(done)}

  def saved_clients(self, clients):
    """Return none: models of clients hold their data."""
    return ()

  def summary(self):
    return {'privacy': self.about()}

  def without_noise(self, state):
    """Return it without the noise that bands keep from round to round."""
    if self.dp.bands == 1:
      return None

    def forget(path, leaf):
      is_noise = privacy.NOISE in f'/{trees.leaf_name(path)}/'
      return jnp.zeros_like(leaf) if is_noise else leaf

    return jax.tree_util.tree_map_with_path(forget, state)


def plan_of(*summaries: Mapping[str, Any]) -> Plan:
  """Return the rounds of runs, and those of their starts: of each once."""
  starts = [summary['start'] for summary in summaries if 'start' in summary]
  of_starts = {start['model']: start['plan'] for start in starts}
  plans = *of_starts.values(), *(summary['plan'] for summary in summaries)
  return tuple(Rounds(**row) for plan in plans for row in plan)


def spent_in(folder: AnyPath) -> str:
  """Return what the finished private runs of a folder spend; '' of none."""
  spent = []
  for path in sorted(Path(folder).glob(f'*/{run_dir.RESULT}')):
    result = run_dir.load_result(path.parent)
    if 'plan' in result.get('privacy', {}):
      spent.append(result['privacy'])
  if not spent:
    return ''
  plan, delta = plan_of(*spent), max(summary['delta'] for summary in spent)
  is_private = all('epsilon' in summary for summary in spent)
  name = 'epsilon' if is_private else 'epsilon_not_private'
  epsilon, who = accountant.epsilon_of(0, delta, plan), neighbours(plan)
  return (
    f'All {len(spent)} private runs in {folder} together have spent {name} '
    f'{epsilon:.3g} at most at delta {delta:g} ({who}); a choice by '
    'accuracies, which have no noise, is not covered.'
  )


def budget_of(workdir: AnyPath) -> Start:
  """Return what the last model of a run has spent, or why no budget has it."""
  settings = parse_config(run_dir.load_config(workdir)['config'])
  result, digest = run_dir.load_result(workdir), run_dir.model_digest(workdir)
  spent, select = result.get('privacy', {}), settings.evaluation.select
  why = spent.get('start', {}).get('no_budget')
  is_old, is_open = 'plan' not in spent, 'epsilon' not in spent
  causes = {
    'the run was not private: dp.clip is 0': not settings.dp,
    'its noise follows from dp.noise_seed': settings.dp.noise_seed is not None,
    f'select={select} chose the round by examples': select != 'last',
    'an earlier version trained it, which stored no rounds': is_old,
    f'its start has no budget ({why})': is_open,
    'its secret is still there, which its own command erases': (
      Path(workdir, secret.NAME).exists()
    ),
    'its model/ is not that of its result': digest != result.get('model', ''),
  }
  cause = next((cause for cause, is_so in causes.items() if is_so), '')
  return Start(digest, () if cause else plan_of(spent), cause)


def start_of(path: str) -> Start:
  """Return what the model of `init_from` has spent; '' is none."""
  if not path:
    return NO_START
  try:
    return budget_of(path)
  except BadInput:
    cause = 'no run tells what it was trained on'
    return Start(run_dir.model_digest(path), no_budget=cause)


def make_budget(
  settings: Settings,
  task: Task,
  stages: tuple[Stage, ...],
  shapes: ClientData,
  log: Callable[[str], None],
) -> Budget:
  """Return the budget of a run; refuse a method that has none.

  All is traced on shapes: of the whole model what uploads depend on, and all
  else of its outline, as `stages` are.
  """
  dp, name = settings.dp, settings.algorithm
  start, quick = start_of(settings.init_from), outline(task)
  plan = _plan_of(settings, task, stages, shapes)
  whole = *start.plan, *plan
  noise = dp.noise_multiplier
  noise = noise or accountant.find_noise(dp.epsilon, dp.delta, whole)
  rate = settings.failures.dropout_rate
  senders = tuple(
    rounds.size * (1 - rate * (not stage.full_participation))
    for rounds, stage in zip(plan, stages, strict=True)
  )
  budget = Budget(dp, plan, noise, (None,) * len(stages), senders, start)
  _check_count(budget)
  independent = tuple(rounds._replace(bands=1) for rounds in plan)
  alone = dataclasses.replace(budget, plan=independent)
  # By the names of a method's uploads; what arrives of them is the same.
  plain = replace(settings, compression='none')
  unfit = getattr(settings.method, 'NOT_CLIPPED', '')
  private = build_stages(plain, quick, budget=alone)
  cause = 'with dp.clip, x and y are the examples of the client, not those of '
  cause += 'all, and are read as in data.x[data.index]'
  check = lambda: privacy.check(private, shapes, name, unfit)
  whole = call_method(settings, check, cause, 'dp.clip')
  for sentence in _sentences(budget, settings, whole):
    log(sentence)
  if dp.bands == 1:
    return budget
  # The server keeps noise of these shapes.
  private = build_stages(settings, quick, budget=alone)
  changes = privacy.changes_of(private, shapes)
  return dataclasses.replace(budget, changes=tuple(changes))


def _check_count(budget: Budget) -> None:
  """Refuse an adaptive clip where the noise leaves nothing for its count."""
  for mechanism in budget.mechanisms():
    largest = mechanism.largest_noise
    if budget.dp.clip_quantile and budget.noise >= largest:
      raise bad_input(
        'dp.clip_quantile',
        got=budget.dp.clip_quantile,
        expected=f'0 with {mechanism.expected:g} clients a round and noise of '
        f'{budget.noise:.3g} clips: to count who is below the clip takes less '
        f'than {largest:g}',
        choices=['dp.clip_quantile=0', 'more clients a round', 'less noise'],
      )


def _sentences(
  budget: Budget, settings: Settings, whole: list[str]
) -> list[str]:
  """Return what a user should read before the run trains."""
  dp, about, name = budget.dp, budget.about(), budget.epsilon_name
  start, clients = budget.start, settings.data.num_seen_clients
  more = ', and of what it takes back from the rounds before' * (dp.bands > 1)
  sentences = [
    f'Privacy of clients ({about["neighbours"]}): {name} {about[name]:.3g} at '
    f'delta {dp.delta:g} after all rounds, noise of {budget.noise:.4g} clips '
    f'of {dp.clip:g} in a sum{more}. Bound: {about["theorem"]}.'
  ]
  if start.no_budget:
    sentences.append(
      f'{name} counts the rounds of this run alone: its start, '
      f'{settings.init_from}, has no budget, so that `export --private` '
      f'refuses the model. Why: {start.no_budget}.'
    )
  elif start.plan:
    spent = budget.epsilon(0)
    sentences.append(
      f'The start, {settings.init_from}, has spent {name} {spent:.3g} at this '
      'delta; it is composed with that of the rounds here.'
    )
  if dp.noise_seed is not None:
    words = 'This run is NOT PRIVATE: its noise follows from dp.noise_seed.'
    sentences.append(words)
  if dp.delta >= 1 / (10 * clients):
    sentences.append(
      f'dp.delta={dp.delta:g} is too large for {clients} clients: it allows to '
      'publish the data of one of them in that share of the runs. Choose less '
      f'than 1 / (10 clients), {1 / (10 * clients):.2g}.'
    )
  if whole:
    parts = ', '.join(whole)
    sentences.append(f'Clipped as it is, being no change of a model: {parts}.')
  return sentences


def _plan_of(
  settings: Settings, task: Task, stages: tuple[Stage, ...], data: ClientData
) -> Plan:
  """Return the rounds of a run as the accountant has them."""
  clients, bands = settings.data.num_seen_clients, settings.dp.bands
  sampler, plan = make_sampler(settings), []
  # A Poisson cohort is drawn client by client: no state tells of another.
  is_fixed = sampler.accounting == 'without_replacement'
  if is_fixed:
    stages = build_stages(settings, task)
  for stage, *states in stage_shapes(stages, data):
    if stage.full_participation:
      plan.append(Rounds(stage.rounds, clients, clients))
      continue
    has_state = is_fixed and privacy.uploads_have_state(stage, *states, data)
    size, accounting = sampler.mean_size, sampler.accounting
    plan.append(
      Rounds(stage.rounds, size, clients, accounting, bands, has_state)
    )
  return tuple(plan)
