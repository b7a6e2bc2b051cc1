"""From a config, whose images may not be here, to the programs of its run.

They are the round of each stage and, on one device, the last evaluation:
functions, and the shapes of their arguments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.federated import chunking, rounds
from fedjax_pfl.federated.client_map import num_places
from fedjax_pfl.federated.sharding import AXIS
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import program
from fedjax_pfl.training.blank import build_blank
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.views import final_views

Arguments = dict[str, PyTree]  # shapes by name


class Program(NamedTuple):
  """One program of a run."""

  name: str  # 'fedbabu round'
  function: Callable
  arguments: Arguments
  chunk: int  # clients side by side


def make_plan(config: Mapping[str, Any]) -> Experiment:
  """Return the experiment of a config, checked as a run checks it."""
  settings = parse_config(config)
  for name, got, only in (
    ('clients_placement', settings.system.clients_placement, 'device'),
    ('buffer_size', settings.speeds.buffer_size, 0),
  ):
    if got != only:
      raise bad_input(
        name,
        got=got,
        expected=f'{only!r}, the only one whose rounds are compiled here',
        choices=[f'--config.{name}={only}'],
        cause='a config for more clients than fit, or for slow ones',
      )
  return build_blank(settings)


def make_programs(
  plan: Experiment, devices: Sequence[Any]
) -> Iterator[Program]:
  """Yield the programs of all stages, their arguments on these devices."""
  train, key = chunking.shapes_of(plan.train), jax.eval_shape(jax.random.key, 0)
  for stage, server, clients in rounds.stage_shapes(plan.stages, train):
    states = {'server': server, 'clients': clients}
    data = jax.eval_shape(stage.prepare_data, server, train)
    cohort = jax.ShapeDtypeStruct((plan.size_of(stage),), 'int32')
    given = {**states, 'cohort': cohort, 'data': data, 'key': key}
    yield _round(plan, stage, given, devices)
  if plan.settings.evaluation.views and len(devices) == 1:
    yield _evaluation(plan, states, devices)


def _round(
  plan: Experiment, stage: Stage, given: Arguments, devices: Sequence[Any]
) -> Program:
  number, (cohort,) = len(devices), given['cohort'].shape
  batch, counts = plan.settings.train.batch_size, plan.train.count
  chunk = plan.settings.system.clients_per_chunk
  limit = chunking.chunk_limit(chunk, np.asarray(counts), cohort, batch)
  own = stage.algorithm, *_on(devices[:1], given, number).values()
  chunk = chunking.chunk_size(chunk, *own, limit=limit)
  mesh = Mesh(np.array(devices), (AXIS,)) if number > 1 else None
  make, name = rounds.make_round, f'{stage.name} round'
  function = make(stage.algorithm, clients_per_chunk=chunk, mesh=mesh)
  chunk = min(chunk, -(-cohort // number))
  return Program(name, function, _on(devices, given), chunk)


def _evaluation(
  plan: Experiment, states: Arguments, devices: Sequence[Any]
) -> Program:
  """Return the last evaluation of all clients, a block of them in a call."""
  settings, run = plan.settings, program.Program(plan)
  views, scoring = final_views(settings), settings.evaluation.scoring
  stage, block = len(plan.stages) - 1, run.block
  evaluate = run.evaluation(stage, views, scoring=scoring, keep_models=True)
  support, query = map(chunking.shapes_of, plan.eval_data)
  arguments = {
    **states,
    'server': (states['server'], {}),
    'ids': jax.ShapeDtypeStruct((block,), 'int32'),
    **{'train': support, 'test': query},
    'key': jax.eval_shape(jax.random.key, 0),
  }
  chunk = chunking.evaluation_chunk(settings.system.clients_per_chunk, block)
  name, placed = f'{plan.stages[-1].name} evaluation', _on(devices, arguments)
  return Program(name, lambda *own: evaluate(*own), placed, chunk)


def _on(
  devices: Sequence[Any], arguments: Arguments, among: int = 1
) -> Arguments:
  """Return the shapes, placed in their order: states of clients are divided.

  One of several devices has a share of them, `among` how many.
  """
  everywhere = divided = SingleDeviceSharding(devices[0])
  if (number := len(devices)) > 1:
    mesh = Mesh(np.array(devices), (AXIS,))
    everywhere, divided = (NamedSharding(mesh, p) for p in (Spec(), Spec(AXIS)))

  def put(name, leaf):
    where, shape = everywhere, leaf.shape
    if name == 'clients':
      where, (rows, *rest) = divided, shape
      shape = (num_places(rows, number * among) // among, *rest)
    return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=where)

  return {
    name: jax.tree.map(partial(put, name), tree)
    for name, tree in arguments.items()
  }
