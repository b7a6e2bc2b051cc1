"""Bytes that a config sends, and the rounds of FedAvg that send as many.

  R = [sum over stages of f T ((1 - d) up + down) + once] / (f 2 P)

Bytes to and from one client, with f of the clients in a round of T, of which d
drop out, and P the bytes of the config's model. Counted in the messages of the
method; nothing is trained.
"""

from typing import NamedTuple

import jax

from fedjax_pfl.core import trees
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.federated import communication
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.results.tables.table import align
from fedjax_pfl.settings import Settings
from fedjax_pfl.training import build_method
from fedjax_pfl.training.outline import outline

HEADER = ('stage', 'rounds', 'clients', 'up, kB', 'down, kB', 'once, kB', 'MB')


class StageBudget(NamedTuple):
  """Messages of one stage."""

  name: str
  rounds: int
  client_fraction: float
  dropout_rate: float
  sizes: communication.Communication

  @property
  def total(self) -> float:
    """Return the bytes to and from one client, on average."""
    each = (1 - self.dropout_rate) * self.sizes.up + self.sizes.down
    return self.client_fraction * self.rounds * each + self.sizes.initial


def communication_budget(settings: Settings) -> tuple[list[StageBudget], float]:
  """Return the stages, and the rounds of FedAvg that send as much."""
  run = outline(settings)
  training, num_clients = settings.training, settings.data.num_seen_clients
  data = shapes_of_clients(run.inputs, num_clients, settings.train.batch_size)
  fraction = training.client_fraction
  if not is_code(training.sampling):  # your own has to see the data
    fraction = build_method.make_sampler(settings).mean_size / num_clients
  at_once = settings.speeds.buffer_size / num_clients or fraction
  budgets, lost = [], settings.failures.dropout_rate
  for stage, *states in stage_shapes(run.stages, data):
    sent = communication.sizes_of(communication.messages(stage, *states, data))
    budget = StageBudget(stage.name, stage.rounds, at_once, lost, sent)
    if stage.full_participation:
      budget = budget._replace(client_fraction=1.0, dropout_rate=0.0)
    budgets.append(budget)
  model = jax.eval_shape(run.task.init, jax.eval_shape(jax.random.key, 0))
  total = sum(budget.total for budget in budgets)
  return budgets, total / (fraction * 2 * trees.num_bytes(model))


def as_text(budgets: list[StageBudget], fedavg_rounds: float) -> str:
  """Return the stages as a table of plain text, and FedAvg's rounds."""
  lines = [HEADER]
  for budget in budgets:
    _, *sizes = budget.sizes  # without what stays
    numbers = [*(size / 1000 for size in sizes), budget.total / 1e6]
    share = f'{100 * budget.client_fraction:.4g} %'
    texts = (f'{number:,.1f}' for number in numbers)
    lines.append((budget.name, f'{budget.rounds:,}', share, *texts))
  return (
    f'{align(lines)}\n\nTo and from a client on average, as much as '
    f'{fedavg_rounds:,.1f} rounds of FedAvg with this model.'
  )
