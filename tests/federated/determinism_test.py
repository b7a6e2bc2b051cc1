"""Results have the same bits for any number of rounds in one call.

With full optimisation, as users have it: without, XLA removes the loop of a
call of one round, which is then another program than a call of three. That
two processes, and a resumed one, have the same bits: resume_test.py.
"""

import jax
import jax.numpy as jnp
from helpers import (
  COHORT,
  KEY,
  assert_same_bits,
  build,
  every_method,
  make_data,
  round_of,
)

from fedjax_pfl.federated.rounds import begin, make_rounds

DATA = make_data()
COHORTS = jnp.array([COHORT, COHORT[::-1], [6, 1, 0, 3, 5]])


def play_calls(stages, rounds, **options):
  """Return server, clients, metrics; each stage in calls of `rounds` each.

  The options are those of `make_round`.
  """
  server, clients = begin(stages[0], DATA, KEY(1))
  history = []
  for number, stage in enumerate(stages):
    if number:
      server, clients = stage.initialize(server, clients, DATA)
    data = stage.prepare_data(server, DATA)
    rounds_fn = make_rounds(round_of(stage, **options))
    for first in range(0, len(COHORTS), rounds):
      server, clients, metrics = rounds_fn(
        server, clients, COHORTS[first : first + rounds], data, KEY(2)
      )
      history.append(metrics)
  return server, clients, history


@every_method(1)
def test_rounds_in_one_call_are_those_of_three_calls(name):
  stages = build(name)
  *states, together = play_calls(stages, 3, clients_per_chunk=1)
  *want, alone = play_calls(stages, 1, clients_per_chunk=1)
  assert_same_bits(states, want)
  for number, metrics in enumerate(together):
    singles = alone[3 * number : 3 * number + 3]
    stacked = jax.tree.map(lambda *rows: jnp.concatenate(rows), *singles)
    assert_same_bits(metrics, stacked)
