"""Run rounds on one device and on a mesh; print the largest differences.

  XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      PYTHONPATH=.:tests/support python -m on_devices fedavg ditto fedper:0.5

After a colon: the rate at which clients fail.
The number of devices has to be set before jax starts: not in a test's process.
"""

import json
import sys

import helpers
import jax
import jax.numpy as jnp
import numpy as np
from counting_method import counting

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.evaluation.evaluate import make_evaluate, view_names
from fedjax_pfl.federated.failures import with_failures
from fedjax_pfl.federated.placement import OneDevice, OnMesh
from fedjax_pfl.federated.rounds import make_round, make_rounds
from fedjax_pfl.federated.sharding import make_mesh, replicate

ROUNDS = 3
COUNTING = (
  'counting'  # the method of counting_method.py, which compiles quickly
)
# Devices, cohort, chunk: of 7 clients, whose states no number of devices here
# divides evenly. Fewer clients than devices, more of them; chunks that are cut
# short; all clients, each of which then stays on the device of its state.
CASES = {
  '5 on 8': (8, helpers.COHORT, 1),
  '5 on 2 by 2': (2, helpers.COHORT, 2),
  '7 on 2 by 3': (2, (6, 0, 2, 4, 5, 1, 3), 3),
  '7 on 8': (8, range(7), 1),
  '6 on 3': (3, (6, 0, 2, 5, 1, 3), 'auto'),
}


def difference(got, want) -> float:
  """Return the largest difference of two trees, relative to the leaf."""
  assert jax.tree.structure(got) == jax.tree.structure(want)
  largest = 0.0
  for one, other in zip(
    jax.tree.leaves(got), jax.tree.leaves(want), strict=True
  ):
    one, other = np.asarray(one, float), np.asarray(other, float)
    assert one.shape == other.shape
    assert (np.isnan(one) == np.isnan(other)).all()  # of clients without tests
    one, other = np.nan_to_num(one), np.nan_to_num(other)
    scale = max(np.abs(other).max(initial=0.0), 1e-3)
    largest = max(largest, np.abs(one - other).max(initial=0.0) / scale)
  return float(largest)


def play(stages, cohort, mesh, chunk):
  """Return server, clients and metrics after ROUNDS of each stage."""
  data, metrics, where = helpers.make_data(), [], placed(mesh)
  server, clients = where.begin(stages[0], data, helpers.KEY(1))
  cohorts = jnp.tile(jnp.array(cohort), (ROUNDS, 1))
  for number, stage in enumerate(stages):
    if number:
      server, clients = where.initialize(stage, server, clients, data)
    round_fn = make_round(stage.algorithm, clients_per_chunk=chunk, mesh=mesh)
    rounds_fn = replicate(make_rounds(round_fn), mesh)
    server, clients, one = rounds_fn(
      server, clients, cohorts, stage.prepare_data(server, data), helpers.KEY(2)
    )
    metrics.append(one)
  if mesh is not None:
    check_shares(clients, len(data.count), mesh.size)
    clients = where.to_host(clients, len(data.count))
  return server, clients, metrics


def placed(mesh):
  return OneDevice() if mesh is None else OnMesh(mesh)


def check_shares(clients, num_clients, devices):
  """Check that each device has the states of K / D clients, rounded up."""
  for leaf in jax.tree.leaves(clients):
    shapes = [shard.data.shape for shard in leaf.addressable_shards]
    share = -(-num_clients // devices), *leaf.shape[1:]
    assert shapes == [share] * devices, (shapes, share)


def evaluate(stages, server, clients, mesh):
  """Return the scores of all clients in all views."""
  data = helpers.make_data()
  test = helpers.make_data(helpers.TEST_COUNTS, seed=1)
  algorithm = stages[-1].algorithm
  evaluate = make_evaluate(
    algorithm,
    helpers.make_task().normalise,
    view_names(algorithm, server, clients, data),
    batch_size=helpers.BATCH,
    mesh=mesh,
  )
  ids = jnp.arange(len(helpers.COUNTS))
  clients = placed(mesh).from_host(jax.tree.map(np.asarray, clients))
  states = server, clients
  return replicate(evaluate, mesh)(*states, ids, data, test, helpers.KEY(5))[0]


def compare(name: str, case='5 on 8') -> dict[str, float]:
  name, _, rate = name.partition(':')
  stages, (devices, cohort, chunk) = helpers.build(name), CASES[case]
  stages = tuple(with_failures(stage, float(rate or 0)) for stage in stages)
  mesh = make_mesh(devices)
  assert mesh.size == devices
  want = play(stages, cohort, None, chunk)
  found = {case: difference(play(stages, cohort, mesh, chunk), want)}
  scores = [evaluate(stages, *want[:2], where) for where in (mesh, None)]
  return {**found, 'evaluation': difference(*scores)}


def compare_counting(cases, rate=0.0) -> dict[str, float]:
  """Return the differences of a method without a model."""
  stage, found = Stage('counting', ROUNDS, counting()), {}
  stages = (with_failures(stage, rate),)
  for case in cases:
    devices, cohort, chunk = CASES[case]
    got, want = (
      play(stages, cohort, mesh, chunk) for mesh in (make_mesh(devices), None)
    )
    found[case] = difference(got, want)
  return found


if __name__ == '__main__':
  jax.config.update('jax_disable_most_optimizations', True)
  jax.config.update('jax_enable_x64', '--float64' in sys.argv)
  names = [name for name in sys.argv[1:] if not name.startswith('--')]
  cases = list(CASES) if names else list(CASES)[:3:2]  # or in a short time
  table = {COUNTING: compare_counting(cases)}
  table[f'{COUNTING}:0.5'] = compare_counting(['5 on 2 by 2'], 0.5)
  table |= {name: compare(name) for name in names}
  print(json.dumps(table))
