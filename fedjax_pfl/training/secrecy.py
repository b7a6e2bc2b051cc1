"""What a private run does otherwise than an open one: keys, counts, files."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_pfl.around import privacy
from fedjax_pfl.core import chacha, trees
from fedjax_pfl.core.types import Key, PyTree
from fedjax_pfl.runs.run_dir import Run


class Open:
  """A run of which everything may be told."""

  budget: Any = None
  is_private = False

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


class Private(Open):
  """A run whose uploads are clipped and noised."""

  is_private = True

  def __init__(self, budget: Any):
    self.budget = budget

  def streams(self, run):
    """Return keys of cohorts and rounds, which nobody can guess."""
    run.write_note()
    dp = self.budget.dp
    if dp.noise_seed is None:
      secret = run.secret(dp.bands > 1)
      key = chacha.key_of(bytes.fromhex(secret))
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
    plan, senders = self.budget.plan, self.budget.senders
    return rounds * plan[stage_number].size, rounds * senders[stage_number]

  def spent(self, done):
    return {self.budget.epsilon_name: self.budget.spent(done)}

  def saved_clients(self, clients):
    """Return none: models of clients hold their data."""
    return ()

  def summary(self):
    return {'privacy': self.budget.summary()}

  def without_noise(self, state):
    """Return it without the noise that bands keep from round to round."""
    if self.budget.dp.bands == 1:
      return None

    def forget(path, leaf):
      is_noise = privacy.NOISE in f'/{trees.leaf_name(path)}/'
      return jnp.zeros_like(leaf) if is_noise else leaf

    return jax.tree_util.tree_map_with_path(forget, state)
