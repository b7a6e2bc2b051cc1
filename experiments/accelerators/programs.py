"""The programs of a run: of each stage its beginning, its round, the tests.

Each is a function and the shapes of its arguments, placed on devices as
`federated/mesh_states.py` and `federated/sharding.py` place arrays:

  states of clients      divided over the mesh, device d owns the rows from
                         d K'/D on, K' = K rounded up to a multiple of D
  all other arguments    on every device
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as Spec

from experiments.accelerators.plan import Plan
from fedjax_pfl.core.algorithm import (
  Client,
  Server,
  as_stored,
  unchanged,
)
from fedjax_pfl.core.types import ClientData, PyTree
from fedjax_pfl.evaluation.evaluate import make_evaluate
from fedjax_pfl.evaluation.metrics import SCORINGS, TEST_BATCH
from fedjax_pfl.federated.chunking import (
  chunk_limit,
  chunk_size,
  evaluation_chunk,
  shapes_of,
)
from fedjax_pfl.federated.dealing import num_places
from fedjax_pfl.federated.mesh_states import initialize_stage
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.federated.sharding import AXIS
from fedjax_pfl.training.program import CPU_BLOCK
from fedjax_pfl.training.views import final_views

KINDS = ('begin', 'data', 'round', 'evaluation')

Arguments = dict[str, PyTree]  # by name; 'clients' are their states [K, ...]


class Program(NamedTuple):
  """One program of a run."""

  stage: str
  kind: str  # of KINDS
  function: Callable
  arguments: tuple[PyTree, ...]  # shapes, placed on devices
  names: tuple[str, ...]  # of the arguments
  calls: float  # in the whole run
  chunk: int = 0  # clients side by side on a device
  batch: int = 0  # images of a client in a step

  @property
  def images(self) -> int:
    """Return the images of a step on one device."""
    return self.chunk * self.batch


def kinds_of(plan: Plan) -> tuple[str, ...]:
  """Return the kinds of programs that a run has."""
  _, *later = plan.stages
  has = {
    'begin': any(stage.initialize is not unchanged for stage in later),
    'data': any(s.prepare_data is not as_stored for s in plan.stages),
    'round': True,
    'evaluation': bool(plan.settings.evaluation.views),
  }
  return tuple(kind for kind in KINDS if has[kind])


def make_programs(plan: Plan, devices: Sequence[Any]) -> Iterator[Program]:
  """Yield the programs of all stages; with several devices on their mesh."""
  train = shapes_of(plan.train)
  before: tuple[Server, Client] | None = None
  for stage, server, clients in stage_shapes(plan.stages, train):
    if before is not None and stage.initialize is not unchanged:
      yield _begin(stage, *before, train, devices)
    data = train
    if stage.prepare_data is not as_stored:
      # A process makes them once; the runner then copies them to its devices.
      yield _program(
        *(devices[:1], stage.name, 'data', stage.prepare_data, 1),
        dict(server=server, data=train),
      )
      data = jax.eval_shape(stage.prepare_data, server, train)
    yield _round(plan, stage, server, clients, data, devices)
    before = server, clients
  if plan.settings.evaluation.views:
    yield _evaluation(plan, plan.stages[-1], *before, devices)


def _begin(stage, server, clients, train, devices) -> Program:
  mesh, initialize = make_mesh(devices), stage.initialize
  if mesh is not None:
    initialize = partial(initialize_stage, stage, mesh=mesh)
  return _program(
    *(devices, stage.name, 'begin', initialize, 1),
    dict(server=server, clients=clients, data=train),
  )


def _round(plan, stage, server, clients, data, devices) -> Program:
  training, cohort = plan.settings.training, plan.cohort_of(stage)
  arguments = dict(
    server=server,
    clients=clients,
    cohort=jax.ShapeDtypeStruct((cohort,), 'int32'),
    data=data,
    key=_key(),
  )
  setting = plan.settings.system.clients_per_chunk
  limit = chunk_limit(setting, plan.train.count, cohort, training.batch_size)
  chunk = chunk_size(
    *(setting, stage.algorithm),
    *share(arguments, devices).values(),
    limit=limit,
  )
  round_fn = make_round(
    stage.algorithm, clients_per_chunk=chunk, mesh=make_mesh(devices)
  )
  chunk = min(chunk, -(-cohort // len(devices)))
  return _program(
    *(devices, stage.name, 'round', round_fn, stage.rounds, arguments),
    chunk=chunk,
    batch=_batch(plan.train, training.batch_size),
  )


def _evaluation(plan, stage, server, clients, devices) -> Program:
  """Return the last evaluation of all clients, a block of them in a call."""
  settings = plan.settings
  block = min(max(CPU_BLOCK, plan.cohort), plan.clients)
  block = -(-block // len(devices)) * len(devices)
  chunk = evaluation_chunk(settings.system.clients_per_chunk, block)
  exact = settings.evaluation.scoring == 'exact'
  tests = TEST_BATCH if exact else settings.training.batch_size
  evaluate = make_evaluate(
    stage.algorithm,
    plan.task.normalise,
    final_views(settings),
    batch_size=tests,
    score_fn=SCORINGS[settings.evaluation.scoring],
    keep_models=True,
    clients_per_chunk=chunk,
    mesh=make_mesh(devices),
  )
  arguments = dict(
    server=server,
    clients=clients,
    ids=jax.ShapeDtypeStruct((block,), 'int32'),
    train=shapes_of(plan.support),
    test=shapes_of(plan.query),
    key=_key(),
  )
  size = settings.finetune.batch_size
  chunk = min(chunk, block // len(devices))
  return _program(
    *(devices, stage.name, 'evaluation', lambda *args: evaluate(*args)),
    *(-(-plan.clients // block), arguments),
    chunk=chunk,
    batch=_batch(plan.support, size),
  )


def _program(devices, stage, kind, function, calls, arguments, **more):
  placed = place(arguments, devices)
  names, shapes = (*placed,), (*placed.values(),)
  return Program(stage, kind, jax.jit(function), shapes, names, calls, **more)


def _batch(data: ClientData, size: int) -> int:
  return min(size, data.index.shape[1])


def _key():
  return jax.eval_shape(jax.random.key, 0)


def make_mesh(devices: Sequence[Any]) -> Mesh | None:
  """Return the mesh of these devices; None of one."""
  return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def place(arguments: Arguments, devices: Sequence[Any]) -> Arguments:
  """Return the shapes of the arguments, placed as a run places them."""
  mesh = make_mesh(devices)
  if mesh is None:
    everywhere = SingleDeviceSharding(devices[0])
  else:
    everywhere = NamedSharding(mesh, Spec())
  placed = {name: _on(everywhere, tree) for name, tree in arguments.items()}
  if mesh is not None and 'clients' in arguments:
    clients = _with_rows(arguments['clients'], mesh.size, 1)
    placed['clients'] = _on(NamedSharding(mesh, Spec(AXIS)), clients)
  return placed


def share(arguments: Arguments, devices: Sequence[Any]) -> Arguments:
  """Return the shapes of what one of these devices has, on the first."""
  size = len(devices)
  clients = _with_rows(arguments['clients'], size, size)
  return place({**arguments, 'clients': clients}, devices[:1])


def _with_rows(clients: PyTree, num_devices: int, parts: int) -> PyTree:
  """Return the shapes of the padded states, or of one of equal parts."""

  def resize(leaf):
    rows = num_places(leaf.shape[0], num_devices) // parts
    return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype)

  return jax.tree.map(resize, clients)


def _on(where: Sharding, tree: PyTree) -> PyTree:
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
    tree,
  )
