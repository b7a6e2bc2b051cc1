"""Begin a run on a mesh; print where its states lie, and where programs do.

  XLA_FLAGS=--xla_force_host_platform_device_count=3 \\
      PYTHONPATH=.:tests/support python tests/accelerators/on_a_mesh.py
"""

import json

import jax
import small_runs

from experiments.accelerators import plan, programs
from fedjax_pfl.federated.placement import on_devices
from fedjax_pfl.training.build import build_experiment


def main():
  # 10 clients on 3 devices: the last one owns two and a copy.
  config = small_runs.make_settings(algorithm='fedper')
  experiment, devices = build_experiment(config), jax.devices()
  begun = on_devices(0).begin(
    experiment.stages[0], experiment.train, jax.random.key(0)
  )
  program, *_ = programs.make_programs(plan.make_plan(config), devices)
  arguments = program.arguments
  share = programs.share(arguments, devices)
  found = {
    'names': [*arguments],
    'run': [rows(tree) for tree in begun],
    'program': [rows(arguments[name]) for name in ('server', 'clients')],
    'data': rows(arguments['data']),
    'share': [leaf.shape[0] for leaf in jax.tree.leaves(share['clients'])],
    'results': results_of(program, arguments['clients']),
  }
  print(json.dumps(found))


def rows(tree):
  """Return (rows in all, rows on a device) of all arrays."""
  return [
    (leaf.shape[0], leaf.sharding.shard_shape(leaf.shape)[0])
    for leaf in jax.tree.leaves(tree)
    if leaf.ndim
  ]


def results_of(program, clients):
  """Return the rows on a device of the states after a round."""
  lowered = jax.jit(program.function).lower(*program.arguments.values())
  _, after, _ = lowered.compile().output_shardings
  return [
    where.shard_shape(leaf.shape)[0]
    for where, leaf in zip(
      jax.tree.leaves(after), jax.tree.leaves(clients), strict=True
    )
  ]


if __name__ == '__main__':
  main()
