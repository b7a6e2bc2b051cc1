"""Do the same on one device and on several; return the largest differences.

Called by simulated_devices.py: see there.
"""

from functools import partial

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import small_runs
from counting_method import counting, start

from experiments.accelerators.compilation import collectives
from experiments.benchmarks.programs import program_bytes
from fedjax_pfl.around.aggregation import Aggregation
from fedjax_pfl.around.attacks import Attack
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.compression import Compression
from fedjax_pfl.around.failures import Failures
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.machine import call_on_host
from fedjax_pfl.evaluation.evaluate import make_evaluate, view_names
from fedjax_pfl.federated.divided_models import OnModelAxis
from fedjax_pfl.federated.model_axis import Division, model_mesh
from fedjax_pfl.federated.placement import OneDevice, OnMesh
from fedjax_pfl.federated.rounds import (
  compile_rounds,
  make_round,
  rounds_fn,
  stage_shapes,
)
from fedjax_pfl.federated.sharding import make_mesh, replicate
from fedjax_pfl.models.lora import with_lora
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.perceptrons import MLP
from fedjax_pfl.training.memory_estimate import forecasts

ROUNDS = 3
TABLE = {'*head/kernel': -2, '*/kernel': -1, '*lora_b': -1}
# Devices, cohort, chunk: of 7 clients, whose states no number of devices here
# divides evenly. Fewer clients than devices, more of them; chunks that are cut
# short; all clients, each of which then stays on the device of its state. Of a
# pair the second number are devices over which a model is divided.
CASES = {
  '5 on 1 x 4': ((4, 4), helpers.COHORT, 1),
  '5 on 2 x 2': ((4, 2), helpers.COHORT, 1),
  '6 on 2 x 2 by 2': ((4, 2), (6, 0, 2, 5, 1, 3), 2),
  '5 on 8': (8, helpers.COHORT, 1),
  '5 on 2 by 2': (2, helpers.COHORT, 2),
  '7 on 2 by 3': (2, (6, 0, 2, 4, 5, 1, 3), 3),
  '7 on 8': (8, range(7), 1),
  '6 on 3': (3, (6, 0, 2, 5, 1, 3), 'auto'),
}


def differences(words, float64=False) -> dict[str, float]:
  """Return {word: the largest difference} of some methods.

  A word is a method and a case, `counting` is that of counting_method.py, which
  compiles quickly; a third part is the rate at which clients fail, or late:
  some have time for a part of their steps, or none; a fourth compresses, and a
  fifth is the rule of a server to whom some lie.
  """
  jax.config.update('jax_disable_most_optimizations', True)
  jax.config.update('jax_enable_x64', float64)
  found = {word: _compare(*word.split(',')) for word in words}
  return {**found, 'other sizes': _other_sizes()}


def _compare(name, case, rate='0', compressor='', rule='uniform'):
  devices, cohort, chunk = CASES[case]
  stages = (Stage(name, ROUNDS, counting()),)
  if name != 'counting':
    stages = build(name, hidden=8 if type(devices) is tuple else 5)
  compression = Compression(compressor) if compressor else None
  late, data = rate == 'late', helpers.make_data()
  if late:
    rate, work = 0, jnp.array([1, 0, 1, 1, 0.4, 0.8, 1])
    data = data._replace(work=work)
  failures = Failures(float(rate), has_deadline=late)
  attack = Attack('alie' if rule != 'uniform' else 'none', 0.3)
  lies = Aggregation(rule, bears=0.3, attack=attack, num_clients=7)
  how = {'compression': compression, 'failures': failures}
  stages = around(stages, Around(**how, aggregation=lies))
  places = placed(devices), OneDevice()
  got, want = (play(stages, cohort, where, chunk, data) for where in places)
  if name == 'counting':
    return difference(got, want)
  scores = (evaluate(stages, *want[:2], where) for where in places)
  return max(difference(got, want), difference(*scores))


def build(name, hidden):
  """Return the stages of a method, or of LoRA with a method."""
  if name == 'lora':
    task = task_from_module(
      with_lora(MLP(helpers.CLASSES), rank=2),
      **{'image_shape': helpers.SHAPE, 'num_classes': helpers.CLASSES},
    )
    return helpers.build('partial', task, shared='*/lora_*', personal='head/*')
  return helpers.build(name, helpers.make_task(hidden))


def _other_sizes():
  """Rounds of 2, of 3 and of 1 clients, each on as many devices."""
  data, ends = helpers.make_data([2] * 12), []
  for mesh in ('auto', None):
    round_fn, states = make_round(counting(), mesh=mesh), start(data=data)
    for cohort in ([0, 1], [2, 3, 4], [5]):
      *states, _ = round_fn(*states, cohort, data, helpers.KEY(2))
    ends.append(states)
  return difference(*ends)


def difference(got, want) -> float:
  """Return the largest difference of two trees, relative to the leaf."""

  def of_leaf(one, other):
    one, other = np.asarray(one, float), np.asarray(other, float)
    assert one.shape == other.shape
    assert (np.isnan(one) == np.isnan(other)).all()  # of clients without tests
    one, other = np.nan_to_num(one), np.nan_to_num(other)
    scale = max(np.abs(other).max(initial=0.0), 1e-3)
    return np.abs(one - other).max(initial=0.0) / scale

  assert jax.tree.structure(got) == jax.tree.structure(want)
  return float(max(jax.tree.leaves(jax.tree.map(of_leaf, got, want))))


def play(stages, cohort, where, chunk, data):
  """Return server, clients and metrics after ROUNDS of each stage."""
  metrics = []
  server, clients = where.begin(stages[0], data, helpers.KEY(1))
  cohorts = jnp.tile(jnp.array(cohort), (ROUNDS, 1))
  for number, stage in enumerate(stages):
    if number:
      server, clients = where.initialize(stage, server, clients, data)
    algorithm_of = lambda numbers, stage=stage: stage.algorithm
    rounds_fn = partial(compile_rounds(algorithm_of, chunk, where), {})
    rounds_fn = where.compile(rounds_fn, divided=1)
    server, clients, one = rounds_fn(
      server, clients, cohorts, stage.prepare_data(server, data), helpers.KEY(2)
    )
    metrics.append(one)
  if where.mesh is not None:
    check_shares(clients, len(data.count), where.num_devices)
  elif where.num_devices > 1:
    check_parts(server, where)
  return server, where.to_host(clients, len(data.count)), metrics


def placed(devices):
  if type(devices) is not tuple:
    return OnMesh(make_mesh(devices))
  number, of_each = devices
  mesh = model_mesh(jax.devices()[:number], of_each)
  return OnModelAxis(Division(mesh, TABLE))


def check_parts(server, where):
  """Check that each device has its part of the first kernels, [.., 4, F]."""
  is_first = lambda leaf: leaf.shape[-2:] in ((4, 8), (4, 64))
  kernels = [*filter(is_first, jax.tree.leaves(server))]
  for leaf in kernels:
    shapes = {shard.data.shape for shard in leaf.addressable_shards}
    columns = leaf.shape[-1] // where.division.mesh.devices.shape[1]
    assert shapes == {(*leaf.shape[:-1], columns)}, shapes
  assert kernels or not hasattr(server, 'params')
  held = [leaf.addressable_shards[0].data for leaf in jax.tree.leaves(server)]
  assert where.bytes_of(server) == sum(part.nbytes for part in held)


def check_shares(clients, num_clients, devices):
  """Check that each device has the states of K / D clients, rounded up."""
  for leaf in jax.tree.leaves(clients):
    shapes = [shard.data.shape for shard in leaf.addressable_shards]
    share = -(-num_clients // devices), *leaf.shape[1:]
    assert shapes == [share] * devices, (shapes, share)


def evaluate(stages, server, clients, where):
  """Return the scores of all clients in all views."""
  data = helpers.make_data()
  test = helpers.make_data(helpers.TEST_COUNTS, seed=1)
  algorithm = stages[-1].algorithm
  evaluate = make_evaluate(
    algorithm,
    helpers.make_task().normalise,
    view_names(algorithm, server, clients, data),
    batch_size=helpers.BATCH,
    mesh=where.mesh,
  )
  ids = jnp.arange(len(helpers.COUNTS))
  states = server, where.from_host(jax.tree.map(np.asarray, clients))
  evaluate = where.compile(evaluate, divided=1)
  return evaluate(*states, ids, data, test, helpers.KEY(5))[0]


def memory_of_divided(model_devices) -> tuple[int, int]:
  """Return the bytes of a round of Ditto: forecast, and of its program."""
  small_runs.TASK = helpers.make_task(512, shape=(8, 8, 1), classes=10)
  where = {'devices': 4, 'model_devices': model_devices}
  settings = {'algorithm': 'ditto', 'views': ('initial',), **where}
  experiment = small_runs.make_experiment(**settings)
  ((_, memory),) = forecasts(experiment)
  ((stage, *states),) = stage_shapes(experiment.stages, experiment.train)
  rounds = rounds_fn(lambda numbers: stage.algorithm, 1, None, None)
  ids = jax.ShapeDtypeStruct((experiment.cohort_size,), 'int32')
  args = *states, ids, experiment.train, helpers.KEY(2)
  lowered = experiment.placement.lower(partial(rounds, {}), *args)
  return memory.round, program_bytes(lowered.compile())


# ---- Collectives


def collectives_of() -> tuple[list[int], list[int]]:
  """Return the bytes of those of a step, and of a round, of FedAvg."""
  where, data = placed(CASES['5 on 1 x 4'][0]), helpers.make_data()
  (stage,) = build('fedavg', hidden=8)
  states = where.begin(stage, data, helpers.KEY(1))
  round_fn = compile_rounds(lambda numbers: stage.algorithm, 1, where)
  round_fn = jax.jit(where.compile(partial(round_fn, {}), divided=1))
  args = *states, jnp.array(helpers.COHORT), data, helpers.KEY(2)
  return collectives(round_fn.lower(*args).compile().as_text())


# ---- Calls of the host


def call_the_host(sizes) -> list[int]:
  """Return the largest partial sum of ones by the host, and the last, added."""

  def twice_the_sum(x):
    rows = jnp.cumsum(x)
    largest = call_on_host(
      lambda rows: rows.max(), jax.ShapeDtypeStruct((), rows.dtype), rows
    )
    return largest + rows[-1]  # on all devices: they wait for the host

  call = replicate(twice_the_sum, make_mesh(jax.device_count()))
  return [int(call(np.ones(size, np.int32))) for size in sizes]
