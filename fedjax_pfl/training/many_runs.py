"""Several runs: one compiled program serves those that may share it.

They differ in seeds, and in traced numbers (settings/validate.py), of which
those that differ are arguments of the program.
"""

import os
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.runs import lock
from fedjax_pfl.settings.validate import (
  flat_settings,
  program_key,
  traced_names,
)
from fedjax_pfl.training import divergence, loop, memory_estimate
from fedjax_pfl.training.build import Experiment, placed_as_started
from fedjax_pfl.training.program import Program


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
  `held_fn` takes its number; else it is refused.

  >>> experiments = [build_experiment({**config, 'seed': s}) for s in (0, 1)]
  >>> train_many(experiments, ['runs/seed0', 'runs/seed1'])
  """
  paths = [*map(os.path.expanduser, workdirs)]
  Rule(
    lambda paths: len({*paths}) == len(experiments),
    f'{len(experiments)} directories, one for each run',
    'a name without the seed in it',
  ).check('workdirs', paths)
  experiments = [
    placed_as_started(experiment, path, progress.log)
    for experiment, path in zip(experiments, paths, strict=True)
  ]
  programs = share_programs(experiments)
  for _, members in programs:
    memory_estimate.check_room(experiments[members[0]])
  results: list[dict[str, Any] | None] = [None] * len(experiments)
  for program, members in programs:
    shared = align([experiments[member] for member in members])
    seeds = dict.fromkeys(str(run.settings.seed) for run in shared)
    title = f'training seed {", ".join(seeds)}'
    if len(shared) > len(seeds):
      title += f' of several settings, {len(shared)} runs'
    log(f'{shared[0].settings.algorithm}: {title}')
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
  for experiment in experiments:
    experiment = with_images_of(experiment, first)
    splits = {
      name: _widen(clients, *(run.data.splits[name] for run in experiments))
      for name, clients in experiment.data.splits.items()
    }
    aligned.append(experiment.with_data(**splits)._replace(task=first.task))
  return aligned


def with_images_of(experiment: Experiment, first: Experiment) -> Experiment:
  """Return the experiment on the arrays of images that the first has."""
  assert experiment.dataset.fingerprint == first.dataset.fingerprint
  splits = {
    name: first.data.splits[name]._replace(index=rows.index, count=rows.count)
    for name, rows in experiment.data.splits.items()
  }
  data = experiment.data._replace(splits=splits, dataset=first.dataset)
  return experiment._replace(data=data)


def _widen(data: ClientData, *of_all: ClientData) -> ClientData:
  """Return the data as wide as the widest; padding is a valid index."""
  index = data.index  # [K, N]
  missing = max(clients.index.shape[1] for clients in of_all) - index.shape[1]
  if missing:
    pad = np.pad if isinstance(index, np.ndarray) else jnp.pad
    index = pad(index, ((0, 0), (0, missing)))
  return data._replace(index=index)


def share_programs(
  experiments: Sequence[Experiment],
) -> list[tuple[Program, list[int]]]:
  """Return programs, each with the members of the experiments that share it."""
  groups: dict[tuple, list[int]] = {}
  for number, experiment in enumerate(experiments):
    alone = number if experiment.holds_seed else None
    place = type(experiment.placement), experiment.placement.num_devices
    shared = program_key(experiment.settings), place, alone
    groups.setdefault(shared, []).append(number)
  programs = []
  for members in groups.values():
    settings = [experiments[number].settings for number in members]
    first, fields = settings[0], [*map(flat_settings, settings)]
    names = [
      name
      for name in traced_names(first)
      if len({flat[name] for flat in fields}) > 1
    ]
    programs.append((Program(experiments[members[0]], names), members))
  return programs
