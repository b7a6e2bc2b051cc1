"""From a config, whose images may not be here, to the programs of its run.

They are of each stage its beginning and its round, and of the last one the
tests. Each is a function and the shapes of its arguments, placed on devices as
`federated/placement.py` and `federated/sharding.py` place arrays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core.algorithm import Stage, as_stored, unchanged
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.federated.chunking import (
  chunk_limit,
  chunk_size,
  evaluation_chunk,
  shapes_of,
)
from fedjax_pfl.federated.client_map import num_places
from fedjax_pfl.federated.placement import OneDevice, OnMesh
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.federated.sharding import AXIS
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import program
from fedjax_pfl.training.blank import build_blank
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.views import final_views

Arguments = dict[str, PyTree]  # by name; 'clients' are their states [K, ...]


class Program(NamedTuple):
  """One program of a run."""

  stage: str
  kind: str  # begin, data, round or evaluation
  function: Callable
  arguments: Arguments  # shapes, placed on devices
  calls: float = 1  # in the whole run
  chunk: int = 0  # clients side by side on a device


def make_programs(
  plan: Experiment, devices: Sequence[Any]
) -> Iterator[Program]:
  """Yield the programs of all stages; with several devices on their mesh."""
  train, before, mesh = shapes_of(plan.train), None, _make_mesh(devices)
  plan = plan._replace(placement=OnMesh(mesh) if mesh else OneDevice())
  for stage, server, clients in stage_shapes(plan.stages, train):
    if before is not None and stage.initialize is not unchanged:
      begin = partial(plan.placement.initialize, stage)
      arguments = place({**before, 'data': train}, devices)
      yield Program(stage.name, 'begin', begin, arguments)
    data = train
    if stage.prepare_data is not as_stored:
      # A process makes them once; the runner then copies them to its devices.
      arguments = place(dict(server=server, data=train), devices[:1])
      yield Program(stage.name, 'data', stage.prepare_data, arguments)
      data = jax.eval_shape(stage.prepare_data, server, train)
    before = dict(server=server, clients=clients)
    yield _round(plan, stage, {**before, 'data': data}, devices)
  if plan.settings.evaluation.views:
    yield _evaluation(plan, before, devices)


def _round(
  plan: Experiment, stage: Stage, given: Arguments, devices: Sequence[Any]
) -> Program:
  settings, cohort = plan.settings, plan.size_of(stage)
  arguments = {
    'server': given['server'],
    'clients': given['clients'],
    'cohort': jax.ShapeDtypeStruct((cohort,), 'int32'),
    'data': given['data'],
    'key': jax.eval_shape(jax.random.key, 0),
  }
  setting, counts = settings.system.clients_per_chunk, plan.train.count
  batch = settings.train.batch_size
  limit = chunk_limit(setting, np.asarray(counts), cohort, batch)
  own = share(arguments, devices).values()
  chunk = chunk_size(setting, stage.algorithm, *own, limit=limit)
  mesh = plan.placement.mesh
  return Program(
    stage.name,
    'round',
    make_round(stage.algorithm, clients_per_chunk=chunk, mesh=mesh),
    place(arguments, devices),
    calls=stage.rounds,
    chunk=min(chunk, -(-cohort // len(devices))),
  )


def _evaluation(
  plan: Experiment, given: Arguments, devices: Sequence[Any]
) -> Program:
  """Return the last evaluation of all clients, a block of them in a call."""
  settings, run = plan.settings, program.Program(plan)
  block, (support, query) = run.block, plan.eval_data
  evaluate = run.evaluation(
    len(plan.stages) - 1,
    final_views(settings),
    scoring=settings.evaluation.scoring,
    keep_models=True,
  )
  arguments = {
    'server': (given['server'], {}),
    'clients': given['clients'],
    'ids': jax.ShapeDtypeStruct((block,), 'int32'),
    'train': shapes_of(support),
    'test': shapes_of(query),
    'key': jax.eval_shape(jax.random.key, 0),
  }
  chunk = evaluation_chunk(settings.system.clients_per_chunk, block)
  return Program(
    plan.stages[-1].name,
    'evaluation',
    lambda *args: evaluate(*args),
    place(arguments, devices),
    calls=-(-settings.data.num_seen_clients // block),
    chunk=min(chunk, block // len(devices)),
  )


# ---- where the arguments lie


def place(arguments: Arguments, devices: Sequence[Any]) -> Arguments:
  """Return the shapes of the arguments, placed as a run places them."""
  mesh, size = _make_mesh(devices), len(devices)
  everywhere = divided = SingleDeviceSharding(devices[0])
  if mesh:
    everywhere = NamedSharding(mesh, Spec())
    divided = NamedSharding(mesh, Spec(AXIS))
  return {
    name: _on(divided, tree, lambda rows: num_places(rows, size))
    if name == 'clients'
    else _on(everywhere, tree)
    for name, tree in arguments.items()
  }


def share(arguments: Arguments, devices: Sequence[Any]) -> Arguments:
  """Return the shapes of what one of these devices has, on the first."""
  first, size = SingleDeviceSharding(devices[0]), len(devices)
  clients = arguments['clients']
  own = _on(first, clients, lambda rows: num_places(rows, size) // size)
  return place({**arguments, 'clients': own}, devices[:1])


def _make_mesh(devices: Sequence[Any]) -> Mesh | None:
  """Return the mesh of these devices; None of one."""
  return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def _on(where: Any, tree: PyTree, rows: Callable | None = None) -> PyTree:
  """Return the shapes, placed; with `rows` as many as it makes of them."""

  def put(leaf):
    shape = leaf.shape
    if rows is not None:
      shape = (rows(shape[0]), *shape[1:])
    return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=where)

  return jax.tree.map(put, tree)


# ---- the experiment


def make_plan(config: Mapping[str, Any]) -> Experiment:
  """Return the experiment of a config, checked as a run checks it."""
  settings = parse_config(config)
  if settings.system.clients_placement != 'device':
    raise bad_input(
      'clients_placement',
      got=settings.system.clients_placement,
      expected='clients on the device',
      choices=['--config.clients_placement=device'],
      cause='a config for more clients than fit; their rounds get rows from '
      'the host, which is not compiled here',
    )
  if settings.speeds.buffer_size:
    raise bad_input(
      'buffer_size',
      got=settings.speeds.buffer_size,
      expected='0: rounds that wait',
      choices=['--config.buffer_size=0'],
      cause="buffers follow from the clients' speeds, which are not made here",
    )
  return build_blank(settings)
