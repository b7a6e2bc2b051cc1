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
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.types import PyTree, Task
from fedjax_pfl.data.images import Images
from fedjax_pfl.federated import chunking, rounds
from fedjax_pfl.federated.divided_models import OnModelAxis
from fedjax_pfl.federated.model_axis import Division, model_mesh
from fedjax_pfl.federated.sharding import AXIS, num_places
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import program
from fedjax_pfl.training.build import Experiment, completed, moved
from fedjax_pfl.training.build_data import build_data, images_of
from fedjax_pfl.training.outline import Outline, outline

Arguments = dict[str, PyTree]  # shapes by name
Devices = Sequence[Any]  # of jax, or of a topology


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
    expected = f'{only!r}, the only one whose rounds are compiled here'
    choices = [f'--config.{name}={only}']
    Rule(only.__eq__, expected, choices=choices).check(name, got)
  plan = load_blank(outline(with_whole_models(settings)))
  return plan._replace(outline=plan.outline._replace(settings=settings))


def with_whole_models(settings: Settings) -> Settings:
  """Return the settings without `model_devices`: there are none here."""
  return settings._replace(system=settings.system._replace(model_devices=1))


def load_blank(outline: Outline) -> Experiment:
  """Return the experiment, on one device.

  What `init_from` names is not read: its model has the same shapes.
  """
  settings, log = outline.settings, lambda text: None
  dataset = images_of(outline.settings, outline.shape, log)
  if settings.model.frozen_features:
    zero, size = np.float32(0), outline.inputs.image_shape
    features = lambda y: Images(np.broadcast_to(zero, (len(y), *size)), y)
    splits = features(dataset.train.y), features(dataset.test.y)
    dataset = dataset._replace(train=splits[0], test=splits[1])
  data = build_data(settings, log, dataset)
  return moved(completed(outline, outline.model, data, log))


def make_programs(plan: Experiment, devices: Devices) -> Iterator[Program]:
  """Yield the programs of all stages, their arguments on these devices."""
  train, key = chunking.shapes_of(plan.train), jax.eval_shape(jax.random.key, 0)
  for stage, server, clients in rounds.stage_shapes(plan.stages, train):
    data = jax.eval_shape(stage.prepare_data, server, train)
    size = plan.sampler_of(stage).size
    cohort = jax.ShapeDtypeStruct((size,), 'int32')
    given = {'server': server, 'clients': clients, 'cohort': cohort}
    yield _round(plan, stage, given | {'data': data, 'key': key}, devices)
  if plan.settings.evaluation.views and len(devices) == 1:
    given = {'server': (server, {}), 'clients': clients, 'key': key}
    yield _evaluation(plan, given, devices)


def _round(
  plan: Experiment, stage: Stage, given: Arguments, devices: Devices
) -> Program:
  number, size = len(devices), plan.sampler_of(stage).size
  chunk = plan.clients_per_chunk
  counts, batch = np.asarray(plan.train.count), plan.settings.train.batch_size
  limit = chunking.chunk_limit(chunk, counts, size, batch)
  own = stage.algorithm, *_on(devices[:1], given, number).values()
  chunk = chunking.chunk_size(chunk, *own, limit=limit)
  if (model_devices := plan.settings.system.model_devices) > 1:
    mesh = model_mesh(devices, model_devices)
    return _of_divided(plan.task, stage, given, chunk, mesh)
  mesh = Mesh(np.array(devices), (AXIS,)) if number > 1 else None
  how = {'clients_per_chunk': chunk, 'mesh': mesh}
  function, placed = rounds.make_round(*own[:1], **how), _on(devices, given)
  chunk = min(chunk, -(-size // number))
  return Program(f'{stage.name} round', function, placed, chunk)


def _of_divided(
  task: Task, stage: Stage, given: Arguments, chunk: int, mesh: Mesh
) -> Program:
  """Return the round of a model that is divided over each row of the mesh."""
  division = Division(mesh, task.divided)
  where = OnModelAxis(division)
  compiled = rounds.compile_rounds(lambda _: stage.algorithm, chunk, where)
  function = where.compile(partial(compiled, {}), divided=1)
  put = lambda name: division.shapes(given[name], rows=name == 'clients')
  placed = {name: put(name) for name in given}
  return Program(f'{stage.name} round', function, placed, chunk)


def _evaluation(
  plan: Experiment, given: Arguments, devices: Devices
) -> Program:
  """Return the last evaluation of all clients, a block of them in a call."""
  run, scoring = program.Program(plan), plan.settings.evaluation.scoring
  which = len(plan.stages) - 1, plan.settings.final_views
  evaluate = run.evaluation(*which, scoring=scoring, keep_models=True)
  train, test = map(chunking.shapes_of, plan.eval_data)
  ids = jax.ShapeDtypeStruct((run.block,), 'int32')
  names = 'server', 'clients', 'ids', 'train', 'test', 'key'
  given = given | {'ids': ids, 'train': train, 'test': test}
  placed = _on(devices, {name: given[name] for name in names})
  chunk = chunking.evaluation_chunk(plan.clients_per_chunk, run.block)
  name = f'{plan.stages[-1].name} evaluation'
  return Program(name, lambda *own: evaluate(*own), placed, chunk)


def _on(devices: Devices, arguments: Arguments, among: int = 1) -> Arguments:
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
