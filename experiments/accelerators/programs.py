"""The programs of a run: of each stage its beginning, its round, the tests.

Each is a function and the shapes of its arguments, placed on devices. How often
a program runs and how long its loops are is known here; the compiler does not
see how many examples a client has.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.accelerators import placement
from experiments.accelerators.placement import make_mesh
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
from fedjax_pfl.federated.mesh_states import initialize_stage
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.training.evaluators import CPU_BLOCK


class Program(NamedTuple):
  """One program of a run."""

  stage: str
  kind: str  # 'begin', 'data', 'round' or 'evaluation'
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
  steps = mean_steps(plan.train.count, cohort, chunk, training.batch_size)
  return _program(
    *(devices, stage.name, 'round', round_fn, stage.rounds, arguments),
    chunk=chunk,
    batch=_batch(plan.train, training.batch_size),
    lengths=(('local_training.py', steps), ('', steps)),
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
    settings.evaluation.views,
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
  steps = mean_steps(plan.support.count, plan.clients, chunk, size)
  batches = mean_steps(plan.query.count, plan.clients, chunk, tests)
  return _program(
    *(devices, stage.name, 'evaluation', lambda *args: evaluate(*args)),
    *(-(-plan.clients // block), arguments),
    chunk=chunk,
    batch=_batch(plan.support, size),
    lengths=(('metrics.py', batches), ('', steps)),
  )


def mean_steps(
  counts: np.ndarray, cohort: int, chunk: int, batch_size: int
) -> float:
  """Return the steps of an epoch of a chunk, which its largest client has.

  The mean over the chunks of one cohort, evenly spaced in size over all
  clients.

  >>> mean_steps(np.array([10, 20, 30, 40]), cohort=4, chunk=2, batch_size=10)
  3.0
  """
  steps = np.sort(-(-np.asarray(counts) // batch_size))
  chosen = steps[np.linspace(0, len(steps) - 1, cohort).round().astype(int)]
  return float(
    np.mean([max(chosen[i : i + chunk]) for i in range(0, cohort, chunk)])
  )


def _program(devices, stage, kind, function, calls, arguments, **more):
  placed = placement.place(arguments, devices)
  names, shapes = (*placed,), (*placed.values(),)
  return Program(stage, kind, jax.jit(function), shapes, names, calls, **more)


def _batch(data: ClientData, size: int) -> int:
  return min(size, data.index.shape[1])


def _key():
  return jax.eval_shape(jax.random.key, 0)
