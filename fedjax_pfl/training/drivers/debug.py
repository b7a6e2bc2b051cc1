"""Rounds client after client in Python, without compilation.

An exception names client, stage and round; a step that makes a number NaN or
infinite raises one.
"""

import jax
import jax.numpy as jnp

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.rounds import Round, make_round


def make_rounds(stage: Stage) -> Round:
  """Return rounds of cohorts [T, C], one round after the other."""
  round_fn = make_round(stage.algorithm, backend='loop', name=stage.name)

  def rounds(server, clients, cohorts, data, key):
    metrics = []
    for cohort in cohorts:
      server, clients, values = round_fn(server, clients, cohort, data, key)
      metrics.append(values)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *metrics)
    return server, clients, stacked

  return rounds
