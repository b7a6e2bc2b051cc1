"""Which runs can share their compiled programs, and the stages that they share.

Runs that differ in the seed alone share them, for a seed is an argument. So do
runs that differ in TRACED numbers as well (a learning rate, hp.mu), which their
servers carry (core/numbered.py), as long as they change neither a shape nor a
decision in Python: mu = 0 and mu > 0 are two programs, if the method asks. That
is found by tracing the method for all settings at once, and dividing them where
their answers differ.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Senders, Stage
from fedjax_pfl.core.numbered import Numbered, number_stages
from fedjax_pfl.core.traced_number import Differ
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.traced import (
  flat_settings,
  traced_names,
  with_numbers,
)
from fedjax_pfl.training.build import Experiment, Shared, make_stages

# What may differ beside numbers: an argument of every program.
SEED = 'seed'


def divide(experiments: Sequence[Experiment]) -> list[list[int]]:
  """Return the places of the experiments that share their programs.

  Not where these contain something of the seed: the examples that the server
  has, or the model of the run to start from.
  """
  groups: dict[str, list[int]] = {}
  for place, experiment in enumerate(experiments):
    knows = any(stage.knows_seed for stage in experiment.stages)
    key = static_key(experiment.settings) + (f' {place}' if knows else '')
    groups.setdefault(key, []).append(place)
  return sorted(
    part
    for places in groups.values()
    for part in _divide_by_decisions(experiments, places)
  )


def static_key(settings: Settings) -> str:
  """Return a text of all fields in which runs of one program agree."""
  varied = {SEED, *traced_names(settings)}
  fields = flat_settings(settings)
  return repr({name: own for name, own in fields.items() if name not in varied})


def share(experiments: Sequence[Experiment]) -> list[Experiment]:
  """Return the experiments of one program with the task and stages of all."""
  first = experiments[0]
  stages, values = first.stages, _differing(experiments)
  if values:
    stages = _numbered(first, values)
  return [
    experiment._replace(
      task=first.task,
      stages=stages,
      shared=_shared(experiment, values, place),
    )
    for place, experiment in enumerate(experiments)
  ]


def _shared(experiment: Experiment, values, place: int) -> Shared | None:
  if not values:
    return None
  numbers = {name: jnp.float32(own[place]) for name, own in values.items()}
  return Shared(experiment.stages, numbers)


def _differing(
  experiments: Sequence[Experiment],
) -> dict[str, tuple[float, ...]]:
  """Return the numbers in which the settings differ: {name: that of each}."""
  fields = [flat_settings(own.settings) for own in experiments]
  names = traced_names(experiments[0].settings)
  values = {name: tuple(own[name] for own in fields) for name in names}
  return {name: own for name, own in values.items() if len({*own}) > 1}


def _divide_by_decisions(
  experiments: Sequence[Experiment], places: list[int]
) -> list[list[int]]:
  """Return the places in parts whose method decides alike in Python."""
  members = [experiments[place] for place in places]
  values = _differing(members)
  if not values:
    return [places]
  try:
    _trace(members[0], values)
    return [places]
  except Differ as found:
    answers = found.answers
  except Exception:  # of a method: it needs one of the numbers as a float
    answers = _values_of_one(members, values)
  parts: dict[Any, list[int]] = {}
  for answer, place in zip(answers, places, strict=True):
    parts.setdefault(answer, []).append(place)
  return [
    part
    for own in parts.values()
    for part in _divide_by_decisions(experiments, own)
  ]


def _values_of_one(members: Sequence[Experiment], values) -> tuple:
  """Return the values of the first number that alone cannot be traced."""
  for name, own in values.items():
    try:
      _trace(members[0], {name: own})
    except Exception:
      return own
  return next(iter(values.values()))


def _trace(experiment: Experiment, values: dict[str, tuple]) -> None:
  """Trace everything in a program that may depend on these numbers."""
  numbers = {name: jax.ShapeDtypeStruct((), jnp.float32) for name in values}
  stages = _numbered(experiment, values)
  shapes = stage_shapes(experiment.stages, experiment.train)
  for stage, (_, server, clients) in zip(stages, shapes, strict=True):
    states = Numbered(server, numbers), clients
    jax.eval_shape(_functions(stage), *states, experiment.train)


def _numbered(experiment: Experiment, values) -> tuple[Stage, ...]:
  """Return the stages of the method whose servers carry these numbers."""
  settings, task = experiment.settings, experiment.task
  return number_stages(
    lambda numbers: make_stages(with_numbers(settings, numbers), task), values
  )


def _functions(stage: Stage) -> Callable:
  """Return what calls every function of a stage that a program contains."""
  algorithm = stage.algorithm

  def call(server, clients, data):
    key, client = jax.random.key(0), trees.gather(clients, 0)
    data = stage.prepare_data(server, data)
    own = ClientData(data.x, data.y, data.index[0], data.count[0])
    down = algorithm.download(server, client)
    results = algorithm.local_update(down, client, own, key)
    uploads = jax.tree.map(lambda leaf: leaf[None], results[1])  # [C, ...]
    first = jnp.zeros(1, int)
    senders = Senders(first, data.count[:1], first == 0, len(data.count))
    after = algorithm.aggregate(server, uploads, senders)
    if algorithm.global_model:
      results = *results, algorithm.global_model(server)
    return (
      *results,
      algorithm.init_client(server, own, key),
      algorithm.post_aggregate(after, data, key),
      algorithm.personalize(server, client, own, key),
      stage.initial_broadcast(server),
    )

  return call
