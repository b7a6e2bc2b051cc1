"""The programs of a run: of each stage its beginning, its round, the tests.

Each is a function and the shapes of its arguments, placed on devices. How often
a program runs and how long its loops are is known here; the compiler does not
see how many examples a client has.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from experiments.accelerators import placement, steps
from experiments.accelerators.placement import make_mesh
from experiments.accelerators.plan import Plan
from fedjax_pfl.client.personalization import Finetuning
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
from fedjax_pfl.federated.mesh_states import initialize_stage
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.training.evaluators import CPU_BLOCK
from fedjax_pfl.training.views import final_views

KINDS = ('begin', 'data', 'round', 'evaluation')


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
  lengths: tuple[
    tuple[str, float], ...
  ] = ()  # of loops, by file in the package

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
    *placement.share(arguments, devices).values(),
    limit=limit,
  )
  round_fn = make_round(
    stage.algorithm, clients_per_chunk=chunk, mesh=make_mesh(devices)
  )
  chunk = min(chunk, -(-cohort // len(devices)))
  batches = steps.batches_of(plan.train.count, training.batch_size)
  own = steps.steps_of_fits(
    stage.algorithm, (*arguments.values(),), plan.train.count
  )
  lengths = {'local_training.py': batches if own is None else own, '': batches}
  return _program(
    *(devices, stage.name, 'round', round_fn, stage.rounds, arguments),
    chunk=chunk,
    batch=_batch(plan.train, training.batch_size),
    lengths=_lengths(lengths, cohort, chunk),
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
  lengths = {
    'metrics.py': steps.batches_of(plan.query.count, tests),
    'personalization.py': steps.batches_of(
      plan.support.count, Finetuning().template_batch
    ),
    '': steps.batches_of(plan.support.count, size),
  }
  return _program(
    *(devices, stage.name, 'evaluation', lambda *args: evaluate(*args)),
    *(-(-plan.clients // block), arguments),
    chunk=chunk,
    batch=_batch(plan.support, size),
    lengths=_lengths(lengths, plan.clients, chunk),
  )


def _lengths(lengths, cohort, chunk) -> tuple[tuple[str, float], ...]:
  """Return the mean length of loops over the chunks of a cohort, by file."""
  return tuple(
    (file, steps.mean_of_chunks(own, cohort, chunk))
    for file, own in lengths.items()
  )


def _program(devices, stage, kind, function, calls, arguments, **more):
  placed = placement.place(arguments, devices)
  names, shapes = (*placed,), (*placed.values(),)
  return Program(stage, kind, jax.jit(function), shapes, names, calls, **more)


def _batch(data: ClientData, size: int) -> int:
  return min(size, data.index.shape[1])


def _key():
  return jax.eval_shape(jax.random.key, 0)
