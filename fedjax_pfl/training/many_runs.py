"""Several runs: one compiled program serves those that may share it.

They differ in seeds, and in traced numbers. A number becomes an argument if
everything that a program contains can be traced with it (program.py says what
stays a constant).
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.client_data import client_of
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.runs import lock
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.validate import flat_settings, traced_names
from fedjax_pfl.training import divergence, loop, memory_estimate
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Program

# The data of an experiment: examples of clients, or of two groups of them.
SPLITS = ('train', 'test', 'validation', 'unseen')
# The method needs a number while it is traced: jax says so in one of these.
NEEDS_VALUE = (
  jax.errors.ConcretizationTypeError,
  jax.errors.TracerArrayConversionError,
  jax.errors.TracerIntegerConversionError,
)


def train_many(
  experiments: Sequence[Experiment],
  workdirs: Sequence[str | PathLike],
  log: Callable[[str], None] = progress.log,
  held_fn: Callable[[int], None] | None = None,
) -> list[dict[str, Any] | None]:
  """Run or continue experiments; return their results.

  Runs that differ in seeds and in traced numbers share their compiled programs.
  Each leaves what `train` leaves, and either function continues what the other
  started. A run that diverges is recorded (divergence.py) and has no result;
  the others go on. So they do where another process writes a directory, if
  `held_fn` takes its place; else it is refused.

  >>> experiments = [build_experiment({**config, 'seed': s}) for s in (0, 1)]
  >>> train_many(experiments, ['runs/seed0', 'runs/seed1'])
  """
  paths = [*map(os.path.expanduser, workdirs)]
  Rule(
    lambda paths: len({*paths}) == len(experiments),
    f'{len(experiments)} directories, one for each run',
    'a name without the seed in it',
  ).check('workdirs', paths)
  experiments = list(map(loop.placed_as_started, experiments, paths))
  programs = share_programs(experiments)
  for _, members in programs:
    memory_estimate.check_room(experiments[members[0]])
  results: list[dict[str, Any] | None] = [None] * len(experiments)
  for program, members in programs:
    shared = align([experiments[member] for member in members])
    seeds = dict.fromkeys(str(one.settings.seed) for one in shared)
    words = f'training seed {", ".join(seeds)}'
    if len(shared) > len(seeds):
      words += f' of several settings, {len(shared)} runs'
    log(f'{shared[0].settings.algorithm}: {words}')
    for member, experiment in zip(members, shared, strict=True):
      try:
        results[member] = loop.train(experiment, paths[member], program)
      except divergence.Diverged as error:
        divergence.record(error)
        log(f'{error}')
      except lock.Held:
        if held_fn is None:
          raise
        held_fn(member)
  return results


def align(experiments: Sequence[Experiment]) -> list[Experiment]:
  """Return the experiments with data of one shape, on the same images.

  Clients are padded to the widest of any seed, which moves results by no more
  than rounding (losses by about 1e-7); the images are those of the first.
  """
  first, aligned = experiments[0], []
  for own in experiments:
    own = _map_data(_widen, with_images_of(own, first), *experiments)
    aligned.append(own._replace(task=first.task))
  return aligned


def with_images_of(experiment: Experiment, first: Experiment) -> Experiment:
  """Return the experiment on the arrays of images that the first has."""
  assert experiment.dataset.fingerprint == first.dataset.fingerprint
  move = lambda own, new: new._replace(index=own.index, count=own.count)
  moved = _map_data(move, experiment, first)
  return moved._replace(dataset=first.dataset)


def _map_data(
  fn: Callable[..., ClientData], experiment: Experiment, *others: Experiment
) -> Experiment:
  """Return the experiment with the data that `fn` returns of all of them."""
  read = lambda own: {name: getattr(own, name) for name in SPLITS}
  is_data = lambda node: isinstance(node, ClientData)
  splits = map(read, (experiment, *others))
  return experiment._replace(**jax.tree.map(fn, *splits, is_leaf=is_data))


def _widen(data: ClientData, *of_all: ClientData) -> ClientData:
  """Return the data as wide as the widest; padding is a valid index."""
  index = data.index  # [K, N]
  missing = max(own.index.shape[1] for own in of_all) - index.shape[1]
  if missing:
    pad = np.pad if isinstance(index, np.ndarray) else jnp.pad
    index = pad(index, ((0, 0), (0, missing)))
  return data._replace(index=index)


def static_key(settings: Settings) -> str:
  """Return a text of all fields but the seed and the numbers."""
  varied = {'seed', *traced_names(settings)}
  fields = flat_settings(settings)
  return repr({name: own for name, own in fields.items() if name not in varied})


def share_programs(
  experiments: Sequence[Experiment],
) -> list[tuple[Program, list[int]]]:
  """Return programs, each with the places of the experiments that share it."""
  groups: dict[tuple, list[int]] = {}
  for place, own in enumerate(experiments):
    alone = place if own.holds_seed else None
    key = static_key(own.settings), own.placement.num_devices, alone
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
  names = traced_names(experiments[0].settings)
  values = {name: [own[name] for own in fields] for name in names}
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
      (name, own[place])
      for name, own in values.items()
      if name not in arguments or (name in decisive and own[place] in (0, 1))
    )
    parts.setdefault(constants, []).append(place)
  return list(parts.values())


def _arguments_among(experiment: Experiment, names: list[str]) -> list[str]:
  """Return which of these numbers can be arguments of a compiled program."""
  if experiment.settings.system.debug or experiment.placement.on_host:
    return []  # each setting has its own program
  if not names or _can_be_traced(experiment, names):
    return names
  return [name for name in names if _can_be_traced(experiment, [name])]


def _can_be_traced(
  experiment: Experiment, names: Sequence[str], kind: Callable = float
) -> bool:
  """Trace a program with numbers other than 0 and 1 (`equals`); or arrays."""
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
  views = algorithm.personalize(server, client, own, key)
  normalise = program.experiment.task.normalise
  score = partial(score_view, algorithm.predict)
  return (
    round_fn(server, clients, cohort, prepared, key),
    algorithm.init_client(server, own, key),
    [score(view, own, normalise) for view in views.values()],
    algorithm.global_model(server) if algorithm.global_model else (),
  )
