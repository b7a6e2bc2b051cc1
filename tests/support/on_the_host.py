"""Rounds of clients on the host, and the same of clients on the device."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from helpers import KEY, make_data

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated import rounds
from fedjax_pfl.federated.placement import OneDevice, OnHost

DATA = make_data()
# Clients are in one round after the other, in every other one, and in none.
COHORTS = np.array([(4, 1, 2, 0), (1, 4, 3, 0), (2, 4, 0, 3)])


def on_host(data: ClientData) -> ClientData:
  return data._replace(index=np.array(data.index), count=np.array(data.count))


def play(stages, data, where, make_rounds):
  """Return the states and the metrics after the rounds of each stage."""
  states, history = where.begin(stages[0], data, KEY(1)), []
  for number, stage in enumerate(stages):
    if number:
      states = where.initialize(stage, *states, data)
    prepared = stage.prepare_data(states[0], data)
    cohorts = jnp.asarray(COHORTS)
    if stage.full_participation:
      cohorts = jnp.tile(jnp.arange(len(data.count)), (2, 1))
    rounds_fn = make_rounds(stage.algorithm)
    *states, metrics = rounds_fn(*states, cohorts, prepared, KEY(2))
    history.append(metrics)
  return *states, history


def play_both(stages):
  """Return the results of rounds with rows on the host, and on the device."""

  def rounds_of(algorithm):
    compiled = rounds.compile_rounds(lambda numbers: algorithm, 1, OnHost())
    return partial(compiled, {})

  def on_device(algorithm):
    return rounds.make_rounds(rounds.make_round(algorithm, clients_per_chunk=1))

  got = play(stages, on_host(DATA), OnHost(), rounds_of)
  want = play(stages, DATA, OneDevice(), on_device)
  assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(got[1]))
  return got, want
