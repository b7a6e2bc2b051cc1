"""Which runs share a program: they differ in seeds, and in traced numbers.

A number becomes an argument if everything that a program contains can be traced
with it (program.py says what stays a constant).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_pfl.core import trees
from fedjax_pfl.data.client_data import client_of
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.validate import flat_settings, traced_names
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import SEED, Program

# The method needs a number while it is traced: jax says so in one of these.
NEEDS_VALUE = (
  jax.errors.ConcretizationTypeError,
  jax.errors.TracerArrayConversionError,
  jax.errors.TracerIntegerConversionError,
)


def static_key(settings: Settings) -> str:
  """Return a text of all fields but the seed and the numbers."""
  varied = {SEED, *traced_names(settings)}
  fields = flat_settings(settings)
  return repr({name: own for name, own in fields.items() if name not in varied})


def share_programs(
  experiments: Sequence[Experiment],
) -> list[tuple[Program, list[int]]]:
  """Return programs, each with the places of the experiments that share it.

  Not where functions hold something of the seed: the examples that the server
  has, or the model of the run to start from.
  """
  groups: dict[tuple, list[int]] = {}
  for place, experiment in enumerate(experiments):
    knows_seed = any(stage.knows_seed for stage in experiment.stages)
    key = (
      static_key(experiment.settings),
      experiment.placement.num_devices,
      place if knows_seed else None,
    )
    groups.setdefault(key, []).append(place)
  shared = []
  for places in groups.values():
    for part in _divide([experiments[place] for place in places]):
      own = [places[number] for number in part]
      names = _differing([experiments[place] for place in own])
      shared.append((Program(experiments[own[0]], [*names]), own))
  return shared


def _differing(experiments: Sequence[Experiment]) -> dict[str, list[float]]:
  """Return the numbers in which the settings differ: {name: that of each}."""
  fields = [flat_settings(own.settings) for own in experiments]
  values = {
    name: [own[name] for own in fields]
    for name in traced_names(experiments[0].settings)
  }
  return {name: own for name, own in values.items() if len({*own}) > 1}


def _divide(experiments: Sequence[Experiment]) -> list[list[int]]:
  """Return the places in parts that have the same constants."""
  first, values = experiments[0], _differing(experiments)
  arguments = _arguments_among(first, [*values])
  decisive = {  # the method asks whether it is 0 or 1
    name
    for name in arguments
    if {0, 1} & {*values[name]}
    and not _can_be_traced(first, [name], jnp.float32)
  }
  parts: dict[tuple, list[int]] = {}
  for place in range(len(experiments)):
    constants = tuple(
      own[place]
      for name, own in values.items()
      if name not in arguments or (name in decisive and own[place] in (0, 1))
    )
    parts.setdefault(constants, []).append(place)
  return list(parts.values())


def _arguments_among(
  experiment: Experiment, names: Sequence[str]
) -> Sequence[str]:
  """Return which of these numbers can be arguments of a compiled program."""
  if experiment.settings.system.debug or experiment.placement.on_host:
    return ()
  if not names or _can_be_traced(experiment, names):
    return names
  return [name for name in names if _can_be_traced(experiment, [name])]


def _can_be_traced(
  experiment: Experiment,
  names: Sequence[str],
  kind: Callable[[float], Any] = float,
) -> bool:
  """Trace everything in a program that may depend on these numbers.

  As Python numbers, which are neither 0 nor 1 (`equals`), or as arrays.
  """
  program = Program(experiment, names)
  numbers = program.numbers_of(experiment.settings)
  numbers = {name: kind(own) for name, own in numbers.items()}
  shapes = stage_shapes(experiment.stages, experiment.train)
  try:
    for place, (_, *states) in enumerate(shapes):
      call = partial(_call_functions, program, place)
      jax.eval_shape(call, numbers, *states, experiment.train)
  except NEEDS_VALUE:
    return False
  return True


def _call_functions(program, place, numbers, server, clients, data):
  """Call every function of a stage that a program contains."""
  stage = program.stages(numbers)[place]
  algorithm, key = stage.algorithm, jax.random.key(0)
  prepared = stage.prepare_data(server, data)
  own = client_of(data, 0)
  client, cohort = trees.gather(clients, 0), jnp.zeros(1, int)
  round_fn = make_round(algorithm, clients_per_chunk=1, mesh=None)
  return (
    round_fn(server, clients, cohort, prepared, key),
    algorithm.init_client(server, own, key),
    algorithm.personalize(server, client, own, key),
    algorithm.global_model(server) if algorithm.global_model else (),
  )
